"""How long plans, replays, and crash tests take: the commands as a person types them, so their start counts.

The plan and the replays are those of a user who tries an upgrade: an operator has reconciled objects of the four kinds,
mostly nothing changes, and ``rolecall plan --all`` starts a sandbox, imports everything, and runs each role. The
records of the operator are then replayed in one sandbox.

The crash test is that of a role which creates ConfigMaps, one task for each.
"""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

import yaml
from bench.observer import is_successful
from bench.operator_process import PROGRAM, RUN, running
from bench.report import Measure, of_warm
from bench.stage import PROJECT, Stage, progress, until
from bench.subjects import CONTENT, WIDGET, write_project

from rolecall.kube.metadata import status_of
from rolecall.kube.references import GVK

PLAN_GOAL_SECONDS, REPLAY_GOAL_SECONDS, CRASH_TEST_GOAL_SECONDS = 120.0, 1.0, 600.0
_WRITES_OF_OPERATOR = 2
"""The status of the running and of the finished reconcile."""
_PLANNED = (0, 2)
"""Exit codes of ``rolecall plan``: nothing would change, or something would."""
_DONE_SECONDS, _PER_OBJECT_SECONDS, _LOOK_SECONDS = 120.0, 5.0, 1.0


async def measure(stage: Stage) -> list[Measure]:
    """Plan as many objects of each of the four kinds, and replay records of them."""
    directory, namespace = stage.subdirectory("plans"), await stage.namespace("bench-plans")
    for part in ("watches.yaml", "roles", "ansible.cfg"):
        (directory / part).symlink_to(PROJECT / part)
    text, count = (CONTENT / "samples.yaml").read_text(), stage.effort.planned
    manifests = [
        each for number in range(count // 4) for each in yaml.safe_load_all(text.replace("NUMBER", str(number)))
    ]
    for obj in manifests:
        obj["metadata"]["namespace"] = namespace
        await stage.client.create(obj)
    environment = {**os.environ, "KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace}
    with running((*RUN, "--record-dir", str(directory / "records")), directory, environment) as operator:
        await operator.ready()
        kinds = {GVK.of_object(obj) for obj in manifests if obj["kind"] != "ReplicaSet"}  # whose status is Kubernetes's

        async def are_done() -> bool:
            await asyncio.sleep(_LOOK_SECONDS)
            found = [obj for gvk in kinds async for page, _ in stage.client.list_pages(gvk, namespace) for obj in page]
            # The song of an object, if it has one, is at its end.
            return all(is_successful(obj) and status_of(obj).get("kiyoshied", True) for obj in found)

        await until(are_done, _DONE_SECONDS + _PER_OBJECT_SECONDS * count, "all objects are reconciled")
    code, seconds = _command(stage, directory, "plan", "--all", "-n", namespace)
    if code not in _PLANNED:
        raise RuntimeError(f"rolecall plan ended with {code}; its output is in {directory}")
    progress(f"{count} objects planned in {seconds:.1f} s, exit code {code}")
    goal = None if stage.effort.is_quick else PLAN_GOAL_SECONDS
    plan = of_warm(f"{count} objects of the four kinds: a plan, start included", seconds, "s", goal)
    return [plan, *_replay(stage, directory)]


def _replay(stage: Stage, directory: Path) -> list[Measure]:
    """Replay some of the operator's records, evenly chosen: one, then all."""
    found, count = sorted((directory / "records").glob("*.jsonl")), stage.effort.replays
    chosen = found[:: max(1, len(found) // count)][:count]
    _, one = _command(stage, directory, "replay", "--summary", str(chosen[0]))
    code, seconds = _command(stage, directory, "replay", "--summary", *map(str, chosen))
    progress(f"{len(chosen)} records replayed in {seconds:.1f} s, one in {one:.1f} s, exit code {code}")
    more, what = (seconds - one) / (len(chosen) - 1), f"{len(chosen)} records"
    return [
        of_warm(f"{what}: a replay, start included", seconds / len(chosen), "s", REPLAY_GOAL_SECONDS),
        of_warm(f"{what}: one replay more", more, "s", remark=f"exit code {code}"),
    ]


async def measure_crash_test(stage: Stage) -> list[Measure]:
    """Kill an operator after each write of a role that creates many objects."""
    count, goal = stage.effort.writes, None if stage.effort.is_quick else CRASH_TEST_GOAL_SECONDS
    directory, namespace = stage.subdirectory("crash-test"), await stage.namespace("bench-crash-test")
    write_project(directory, [_creation(number) for number in range(count - _WRITES_OF_OPERATOR)])
    widget = {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": {"name": "one"}, "spec": {}}
    (directory / "widget.yaml").write_text(yaml.safe_dump(widget))
    progress(f"{count} writes: killing an operator after each of them")
    arguments = ("-f", "widget.yaml", "-n", namespace, "-o", "json")
    code, seconds = _command(stage, directory, "crashtest", *arguments)
    if code:
        raise RuntimeError(f"rolecall crashtest ended with {code}; its output is in {directory}")
    trials = json.loads((directory / "crashtest.txt").read_text())["trials"]
    if len(trials) != count:
        raise RuntimeError(f"expected {count} trials, found {len(trials)}")
    remark = f"{seconds / count:.2f} s for each"
    return [of_warm(f"{count} writes: a crash test, start included", seconds, "s", goal, remark)]


def _creation(number: int) -> dict[str, object]:
    metadata = {"name": f"c-{number:03d}", "namespace": "{{ ansible_operator_meta.namespace }}"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(number)}}
    return {"name": f"Create ConfigMap {number}", "kubernetes.core.k8s": {"definition": config_map}}


def _command(stage: Stage, directory: Path, *arguments: str) -> tuple[int, float]:
    """Run a command of rolecall in a directory; return its exit code and how long it took.

    Its standard output is in a file with its name, and standard error in another one.
    """
    started, file = time.monotonic(), directory / arguments[0]
    with file.with_suffix(".txt").open("wb") as output, file.with_suffix(".log").open("wb") as errors:
        environment, none = {**os.environ, "KUBECONFIG": str(stage.kubeconfig)}, subprocess.DEVNULL
        command = [*PROGRAM, *arguments]
        code = subprocess.call(command, cwd=directory, env=environment, stdin=none, stdout=output, stderr=errors)
    return code, time.monotonic() - started
