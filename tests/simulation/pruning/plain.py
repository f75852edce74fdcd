"""Plain cases: a user switches an option off, nothing goes wrong, and what the option made is pruned.

Rules that keep everything would have no wrong deletion. ``CASES`` show that prune deletes what it should, in the time
of the task and three runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rolecall.kube.references import RawObject
from tests.simulation.history import Options, Report, play
from tests.simulation.kinds import THING, ServedKind
from tests.simulation.pruning.history import PruningHistory
from tests.simulation.pruning.kinds import CLUSTER, DEPLOYMENT, ELSEWHERE, KINDS, MARKED, path_of
from tests.simulation.pruning.roles import Gate, Item, Method, RoleModel
from tests.simulation.runs import NAMESPACE

_BASE: Final = next(kind for kind in KINDS if kind.gvk.kind == "Service")
_SETTLE_SECONDS: Final = 40.0
_AFTER_SECONDS: Final = 20
_RUNS: Final = 3
_RUN_SECONDS: Final = 6.0
"""The longest time of a run and what follows it."""

Disturb = Callable[["PlainHistory"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PlainCase:
    """Items that an edit of the options makes obsolete, and what happens ``before`` and ``after`` it."""

    items: tuple[Item, ...]
    kind: ServedKind = THING
    options: tuple[tuple[str, ...], ...] = (("o1",), ())
    """The options of each spec; the last edit switches off what must go."""

    before: Disturb | None = None
    after: Disturb | None = None
    runs: int = _RUNS


def _item(kind: str, method: Method = Method.POST, suffix: str = "x", option: str = "o1", **options: Any) -> Item:
    found = next(each for each in KINDS if each.gvk.kind == kind)
    return Item(found, suffix, option, method, is_marked=found in MARKED, **options)


async def _restart(history: "PlainHistory") -> None:
    await asyncio.sleep(8.0)
    await history.restart()


async def _label(history: "PlainHistory") -> None:
    history.user.label_primary()
    await asyncio.sleep(10.0)


async def _close(history: "PlainHistory") -> None:
    history.user.set_gate(Gate.READY, is_open=False)
    history.user.request()
    await asyncio.sleep(20.0)


CASES: Final[dict[str, PlainCase]] = {
    "ConfigMap by POST": PlainCase((_item("ConfigMap"),)),
    "Deployment by POST": PlainCase((_item("Deployment"),)),
    "DaemonSet by server-side apply": PlainCase((_item("DaemonSet", Method.APPLY),)),
    "Service by PUT": PlainCase((_item("Service", Method.PUT),)),
    "Ingress by apply: true": PlainCase((_item("Ingress", Method.MERGE),)),
    "Route by POST": PlainCase((_item("Route"),)),
    "ServiceAccount by server-side apply": PlainCase((_item("ServiceAccount", Method.APPLY),)),
    "Role by PUT": PlainCase((_item("Role", Method.PUT),)),
    "RoleBinding by PUT": PlainCase((_item("RoleBinding", Method.PUT),)),
    "HorizontalPodAutoscaler by apply: true": PlainCase((_item("HorizontalPodAutoscaler", Method.MERGE),)),
    "PodDisruptionBudget by POST": PlainCase((_item("PodDisruptionBudget"),)),
    "NetworkPolicy by server-side apply": PlainCase((_item("NetworkPolicy", Method.APPLY),)),
    "CronJob by POST": PlainCase((_item("CronJob"),)),
    "marked Secret by POST": PlainCase((_item("Secret"),)),
    "marked Job by POST": PlainCase((_item("Job"),)),
    "marked StatefulSet by server-side apply": PlainCase((_item("StatefulSet", Method.APPLY),)),
    "marked custom resource by apply: true": PlainCase((_item("Widget", Method.MERGE),)),
    "cluster-scoped object of a namespaced primary": PlainCase((_item("ClusterWidget"),)),
    "object in another namespace": PlainCase((_item("ConfigMap", namespace=ELSEWHERE),)),
    "kubectl apply --server-side": PlainCase((_item("ConfigMap", Method.KUBECTL),)),
    "several objects": PlainCase(
        (_item("Ingress"), _item("Service", Method.PUT, "y"), _item("ConfigMap", Method.APPLY, "z"))
    ),
    "cluster-scoped primary": PlainCase(
        (_item("ConfigMap", Method.APPLY), _item("ClusterWidget", suffix="y")), CLUSTER
    ),
    "restart while it is obsolete": PlainCase((_item("Service"),), after=_restart, runs=6),
    "labels change before": PlainCase((_item("Service"),), before=_label),
    "Deployment that is never ready": PlainCase(
        (_item("Ingress"), _item("Deployment", suffix="never-ready", option="")),
    ),
    "gate that closed before": PlainCase(
        (_item("Ingress"), _item("Route", suffix="y", option="", gate=Gate.READY)), before=_close
    ),
    "an option goes, another one comes": PlainCase(
        (_item("Ingress"), _item("Deployment", suffix="y", option="o2")), options=(("o1",), ("o2",)), runs=5
    ),
    "off, on, and off again": PlainCase((_item("ConfigMap"),), options=(("o1",), (), ("o1",), ())),
}


class PlainHistory(PruningHistory):
    """The history of one plain case, without faults."""

    case: PlainCase

    def __init__(self, seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(seed, root, options, loop)
        self.count, self.shards, self.period, self.fault_rate = 1, 0, None, 0.0
        self.user.interferes = False

    def draw_models(self) -> list[RoleModel]:
        """Return the role of the case."""
        base = Item(_BASE, "base")
        return [RoleModel(self.case.kind, (base, *self.case.items), _AFTER_SECONDS)]

    def begin(self) -> None:
        """Create the primary."""
        self.user.prepare()
        self.user.fail_forever(path_of(DEPLOYMENT, NAMESPACE, "a-never-ready"))
        self.user.write_primary(self.case.kind, "a", self._spec(0))

    def _spec(self, number: int) -> RawObject:
        return {"options": list(self.case.options[number]), "size": 1}

    async def happen(self) -> None:
        """Edit the spec, and wait for what is pruned."""
        await asyncio.sleep(_SETTLE_SECONDS)
        if self.case.before is not None:
            await self.case.before(self)
        paths = [item.path("a") for item in self.case.items if item.option == "o1"]
        last = len(self.case.options) - 1
        for number in range(1, last + 1):
            if number % 2 and (missing := self._missing(paths)):
                self.oracles.find(f"wasn't made: {missing}")
            [obj] = self.server.objects(self.case.kind.gvk)
            self.user.write_spec(obj, self._spec(number))
            runs, at = len(self.truth.runs), self.truth.now()
            if number < last:
                await asyncio.sleep(_SETTLE_SECONDS + _AFTER_SECONDS)
        if self.case.after is not None:
            await self.case.after(self)
        await self._judge(paths, at, runs)
        await asyncio.sleep(_SETTLE_SECONDS)
        model = self.models[self.case.kind.gvk.kind]
        needed = model.needs("a", self._spec(last), model.state)
        closed = {item.path("a") for item in self.case.items if item.gate and item.gate not in self.open_gates}
        if missing := self._missing(needed.keys() - closed):
            self.oracles.find(f"is gone, although it is needed: {missing}")

    async def _judge(self, paths: list[str], at: float, runs: int) -> None:
        """Wait until objects that are obsolete since a time are pruned; find what isn't, or only after more runs."""
        limit = _AFTER_SECONDS + self.case.runs * _RUN_SECONDS
        for _ in range(int(2 * (at + limit - self.truth.now()))):
            if self._missing(paths) == paths:
                break
            await asyncio.sleep(0.5)
        if left := [path for path in paths if path in self.truth.living]:
            self.oracles.find(f"isn't pruned after {limit:.0f} s: {left}")
        elif len(self.truth.runs) - runs > self.case.runs:
            self.oracles.find(f"is pruned only after {len(self.truth.runs) - runs} runs")

    def _missing(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if path not in self.truth.living]


class AnyPlainHistory(PlainHistory):
    """The history of the plain case with the number of the seed."""

    def __init__(self, seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self.case = list(CASES.values())[seed % len(CASES)]
        super().__init__(seed, root, options, loop)


def play_case(name: str, root: Path) -> Report:
    """Play a plain case, and return what it has found."""
    history = type("History", (PlainHistory,), {"case": CASES[name]})
    return play(1, root, Options(fault_rate=0.0, replicas=1), history)
