"""Roles without tuning: five random ones with fixed seeds, and one of sixty tasks as in applications.

The random roles are those of the tests of plans; this module ignores their failures, so that each reaches its
end. Times of kinds of tasks are those of the sixty tasks, by the first word of their names: from the start of a task
to the start of the next one, as ansible-runner's events in the artifacts tell it. So they contain what Ansible does
between tasks, and all contenders are measured alike.
"""

import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from bench.contenders import CONTENT, KOPF, PEER, Contender, Ring, rings
from bench.measures import Collection, Measure, at_most
from bench.report import Samples
from bench.stage import Stage, progress
from bench.subjects import Subject
from bench.widgets import WIDGET
from tests.integration.random_roles import TEMPLATE, setup_of, tasks_of
from tests.integration.things import DEFINITION

from rolecall.kube.errors import ConflictError
from rolecall.kube.references import ObjectKey, RawObject

SEEDS = range(1, 6)
SIXTY = "sixty"
GOALS_MS = {"k8s": 40.0, "info": 30.0, "compute": 8.0}
"""What a task may take on a machine twice as quick as the one in the README."""

TITLES = {
    "k8s": "`k8s`",
    "wait": "`k8s` with `wait` and a template file",
    "info": "`k8s_info`",
    "compute": "only computing (`set_fact`, `debug`, `assert`, …)",
    "filter": "the same with a filter of the role",
    "template": "`set_fact` from a template file",
    "loop": "an item of a loop",
    "include": "`include_tasks`",
    "skip": "a skipped task",
}
_PEER_ROOT = Path("/tmp/ansible-operator/runner")  # noqa: S108 - where the Go runner has its files
_WATCHES = f"""\
- group: {WIDGET.group}
  version: {WIDGET.version}
  kind: {WIDGET.kind}
  role: ordinary
  watchDependentResources: false
  vars: {{me: "{{{{ ansible_operator_meta.name }}}}", ns: "{{{{ ansible_operator_meta.namespace }}}}"}}
"""
_START, _STATS, _ITEM = "playbook_on_task_start", "playbook_on_stats", "runner_item_on_"


@dataclass(frozen=True, slots=True)
class Case(Subject):
    """One of the roles: an object's name selects its tasks."""

    def make(self, key: ObjectKey, pods: int) -> RawObject:  # noqa: ARG002 - the interface
        """Return a new object."""
        metadata = {"name": key.name, "namespace": key.namespace}
        spec = {"case": key.name, "revision": 0}
        return {"apiVersion": self.gvk.api_version, "kind": self.gvk.kind, "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class TaskTime:
    """How long one task took, for each item if it is a loop."""

    kind: str
    milliseconds: float


async def measure_ordinary(stage: Stage, chosen: Sequence[Contender], rounds: int, slow_rounds: int) -> list[Measure]:
    """Reconcile an object of each role again and again, without any change of it; kopf does not take part."""
    directory = await _prepared(stage)
    seconds = {name: Collection() for name in _cases()}
    kinds = {kind: Collection() for kind in TITLES}
    contenders = [_with_files(stage, each) for each in chosen if each.name != KOPF]
    async with rings(stage, "ordinary", contenders, directory) as all_rings:
        for name in _cases():
            for ring in all_rings:
                await _make(ring, name)
            for turn in range(rounds):
                for ring in all_rings:
                    if turn < slow_rounds or not ring.contender.is_slow:
                        await _turn(stage, ring, name, seconds[name])
                        if name == SIXTY:
                            _add_tasks(kinds, ring.name, task_times(_newest_events(stage, ring, name)))
            _tell(name, seconds[name])
    return [_measure_of(name, seconds[name]) for name in _cases()] + [
        Measure(f"each task: {TITLES[kind]}", "ms", found.samples, at_most(GOALS_MS[kind]) if kind in GOALS_MS else ())
        for kind, found in kinds.items()
    ]


def task_times(events: Sequence[dict[str, Any]]) -> list[TaskTime]:
    """Return the time of each task in the events of a run: until the next task starts, or the run ends."""
    ordered = sorted(events, key=lambda event: int(event["counter"]))
    marks = [number for number, event in enumerate(ordered) if event["event"] in (_START, _STATS)]
    found = []
    for first, after in itertools.pairwise(marks):
        items = sum(event["event"].startswith(_ITEM) for event in ordered[first:after])
        name = str(ordered[first]["event_data"].get("name") or "").rpartition(" : ")[2]
        between = _moment(ordered[after]) - _moment(ordered[first])
        found.append(TaskTime(name.partition(" ")[0], 1000 * between / max(1, items)))
    return found


def _tell(name: str, seconds: Collection) -> None:
    medians = (f"{each} {Samples(values).median:.2f}" for each, values in seconds.samples.items())
    progress(f"{name}: {', '.join(medians)}")


def _moment(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["created"]).timestamp()


def _cases() -> list[str]:
    return [*(f"seed-{seed}" for seed in SEEDS), SIXTY]


def _measure_of(name: str, seconds: Collection) -> Measure:
    title = "sixty tasks" if name == SIXTY else f"a random role, {name.replace('-', ' ')}"
    return Measure(f"{title}: a reconcile, from trigger to status written", "s", seconds.samples)


def _add_tasks(kinds: dict[str, Collection], name: str, times: Sequence[TaskTime]) -> None:
    for each in times:
        if each.kind in kinds:
            kinds[each.kind].add(name, each.milliseconds)


async def _prepared(stage: Stage) -> Path:
    """Write the project of all contenders and define the further kind that the random roles use."""
    try:
        await stage.client.create(DEFINITION)
    except ConflictError:
        progress("The kind of the random roles exists")
    directory = stage.subdirectory("ordinary")
    role = directory / "roles" / "ordinary"
    shutil.copytree(CONTENT / "roles" / "ordinary", role, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "watches.yaml").write_text(_WATCHES)
    (role / "templates" / "text.j2").write_text(TEMPLATE)
    for seed in SEEDS:
        tasks = [task | {"ignore_errors": True} for task in yaml.safe_load(tasks_of(seed))]
        (role / "tasks" / f"seed-{seed}.yml").write_text(yaml.safe_dump(tasks, sort_keys=False, width=200))
    return directory


def _with_files(stage: Stage, contender: Contender) -> Contender:
    """Return a contender that keeps its artifacts where they are found."""
    if contender.name == PEER:
        return contender
    flags = ("--work-dir", str(_root(stage, contender.name)))
    return Contender(contender.name, (*contender.command, *flags), contender.programs)


def _root(stage: Stage, name: str) -> Path:
    return _PEER_ROOT if name == PEER else stage.directory / f"work-{name}"


async def _make(ring: Ring, name: str) -> None:
    key, subject = ObjectKey(ring.namespace, name), Case(WIDGET, name, name)
    for obj in setup_of(name):
        await ring.stage.client.create({**obj, "metadata": obj["metadata"] | {"namespace": ring.namespace}})
    await ring.create(subject, [key], 0)
    await ring.quiet()


async def _turn(stage: Stage, ring: Ring, name: str, seconds: Collection) -> None:
    key = ObjectKey(ring.namespace, name)
    shutil.rmtree(_artifacts(stage, ring, name), ignore_errors=True)  # what is found later is of this turn
    seconds.add(ring.name, await ring.change(Case(WIDGET, name, name), [key]))
    await ring.quiet()


def _artifacts(stage: Stage, ring: Ring, name: str) -> Path:
    own = (WIDGET.group, WIDGET.version, WIDGET.kind, ring.namespace, name)
    return _root(stage, ring.name).joinpath(*own, "artifacts")


def _newest_events(stage: Stage, ring: Ring, name: str) -> list[dict[str, Any]]:
    runs = [each for each in _artifacts(stage, ring, name).iterdir() if not each.is_symlink()]
    newest = max(runs, key=lambda run: run.stat().st_mtime_ns)
    return [json.loads(file.read_bytes()) for file in (newest / "job_events").glob("*.json")]
