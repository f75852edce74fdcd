"""Plans that tests make in one process, in a sandbox that many of them share, and the runs of these plans.

Their account is only permitted to read.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli.ansible_environment import ansible_defaults_for
from rolecall.cli.parsing import Parser, add_flags, settings_of
from rolecall.cli.plan import FLAGS
from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import load_watches
from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.warm.starter import starter_for
from rolecall.system.processes import reap_children
from rolecall.workbench.plan.model import Plan, PlanRequest
from rolecall.workbench.plan.planner import Planner, Target, planner_in, targets_of
from rolecall.workbench.plan.reconciles import PlannedReconciles
from rolecall.workbench.plan.sandbox import Sandbox
from rolecall.workbench.plan.sandbox_sources import LiveSource
from rolecall.workbench.replay.writes import RunLines
from tests.support.world import World, names

NAMESPACE = GVK("", "v1", "Namespace")
COMMON = '- name: Run the tasks of the case\n  ansible.builtin.include_tasks: "{{ case }}.yml"\n'
"""A role whose objects name their case."""
NAMES = 'vars: {me: "{{ ansible_operator_meta.name }}", ns: "{{ ansible_operator_meta.namespace }}"}'
"""The variables of such a role."""
ObjectId = tuple[str, ObjectKey]
"""A kind and the key of an object."""


def primary(gvk: GVK, name: str, **spec: object) -> RawObject:
    """Return an object to reconcile."""
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Project:
    """A directory with watches.yaml, and the variables that its operator has in a namespace."""

    directory: Path
    namespace: str
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Flags of ``rolecall run`` that decide what a run does."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Work in the directory, with the environment that ``rolecall plan`` would have there."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.directory)
            given = {"WATCH_NAMESPACE": self.namespace, "ANSIBLE_GATHERING": "explicit", **self.environment}
            for name, value in given.items():
                patch.setenv(name, value)
            patch.setenv("ANSIBLE_ROLES_PATH", self.environment.get("ANSIBLE_ROLES_PATH", ""))  # set again by request()
            yield

    def request(self, kubeconfig: Path, **asked: Any) -> PlanRequest:
        """Return a request, by default for everything in the namespace; to be called while entered."""
        parser = Parser()
        add_flags(parser, Settings(), only=FLAGS)
        settings = settings_of(parser.parse_args(self.arguments), Settings(), os.environ)
        os.environ.update(ansible_defaults_for(settings, os.environ))
        settings = replace(settings, kubeconfig=str(kubeconfig))
        watches = load_watches(settings.watches_file, os.environ)
        return PlanRequest(settings, watches, namespace=self.namespace, **(asked or {"everything": True}))


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan, with the lines of the runs for each object, and the requests that the cluster got for it."""

    plan: Plan
    runs: Mapping[ObjectId, Sequence[RunLines]]
    requests: Counter[str]


@dataclass(frozen=True, slots=True)
class _KeepingPlanner(Planner):
    """Keeps the reconciles of each object in ``kept``."""

    kept: dict[ObjectId, PlannedReconciles]

    def reconciles_of(self, target: Target) -> PlannedReconciles:
        """Return the reconciles of an object, and keep them."""
        reconciles = Planner.reconciles_of(self, target)
        self.kept[target.watch.gvk.kind, target.key] = reconciles
        return reconciles


async def plan_of(project: Project, sandbox: Sandbox, reader: Path, **asked: Any) -> KeptPlan:
    """Plan a request in a sandbox that is empty again afterwards; everything in the namespace by default."""
    requests: Counter[str] = Counter()
    kept: dict[ObjectId, PlannedReconciles] = {}
    with project.entered():
        request = project.request(reader, **asked)
        async with (
            await Client.connect(str(reader), lambda _status, method, _host: requests.update([method])) as cluster,
        ):
            targets = await targets_of(request, cluster)
            reap_children()
            try:
                async with (
                    starter_for(request.watches, warm=request.settings.warm) as starter,
                    planner_in(request, sandbox, LiveSource(cluster), ProcessRunner(starter)) as planner,
                ):
                    objects = await _KeepingPlanner(request, planner.context, planner.source, kept).plan_all(
                        targets, lambda _: None
                    )
                    assumptions, changes = planner.context.importer.assumptions, planner.source.changes
                    plan = Plan(tuple(objects), tuple(assumptions), definitions=changes)
            finally:
                await sandbox.forget()
    runs = {ident: [RunLines.of_run(each) for each in made.recorder.records] for ident, made in kept.items()}
    return KeptPlan(plan, {ident: lines for ident, lines in runs.items() if lines}, requests)


async def clear(project: Project, kubeconfig: Path) -> None:
    """Remove the primaries of a project and its namespace, so that no other operator finds them."""
    with project.entered():
        watched = [watch.gvk for watch in project.request(kubeconfig).watches]
    async with await Client.connect(str(kubeconfig)) as client:
        world = World(client, project.namespace)
        found = [(each, name) for each in watched for name in names(await world.objects(each))]
        for gvk, name in found:
            with suppress(NotFoundError):
                await world.patch(gvk, name, {"metadata": {"finalizers": None}})
                await world.delete(gvk, name)
        await client.delete(NAMESPACE, ObjectKey("", project.namespace))


def joined(runs: Sequence[RunLines]) -> RunLines:
    """Return the runs of one object, one after the other, as one."""
    first, last = runs[0], runs[-1]
    exchanges = [exchange for run in runs for exchange in run.exchanges]
    return RunLines(
        first.obj,
        tuple({**exchange, "number": number} for number, exchange in enumerate(exchanges, 1)),
        tuple(task for run in runs for task in run.tasks),
        first.started,
        (last.started - first.started).total_seconds() + last.seconds,
        frozenset().union(*(run.placeholders for run in runs)),
    )
