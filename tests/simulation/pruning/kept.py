"""Cases in which a rule of prune keeps an object: one script for each, without faults or chance.

Histories find what nobody has thought of, and need many seeds. These cases find a broken rule at once. Each ``Script``
ends with the objects that must still exist; the oracle judges every deletion.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import RawObject
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION
from tests.simulation.history import Options, Report, play
from tests.simulation.kinds import THING
from tests.simulation.pruning.history import PruningHistory
from tests.simulation.pruning.kinds import KINDS, USER, path_of
from tests.simulation.pruning.roles import Gate, Item, Method, RoleModel, Way
from tests.simulation.runs import NAMESPACE

_CONFIG_MAP, _SERVICE = (next(each for each in KINDS if each.gvk.kind == kind) for kind in ("ConfigMap", "Service"))
_BASE: Final = Item(_SERVICE, "base")
_SETTLE_SECONDS: Final = 20.0
_LONG_SECONDS: Final = 60.0

Script = Callable[["KeptHistory"], Awaitable[tuple[str, ...]]]
"""Lets a case happen, and returns the suffixes of the items that must exist in the end."""


@dataclass(frozen=True, slots=True)
class KeptCase:
    """The role of a case, and what happens; the spec begins with the option ``o1``."""

    script: Script
    items: tuple[Item, ...] = (_BASE, Item(_CONFIG_MAP, "x", "o1"))
    after_seconds: int = 5
    mode: str = "delete"


class KeptHistory(PruningHistory):
    """The history of one case."""

    case: KeptCase

    def __init__(self, seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(seed, root, options, loop)
        self.count, self.shards, self.period, self.fault_rate = 1, 0, None, 0.0
        self.user.interferes = False

    def draw_models(self) -> list[RoleModel]:
        """Return the role of the case, and that of a visitor."""
        model = RoleModel(THING, self.case.items, self.case.after_seconds, self.case.mode)
        return [model, RoleModel(USER, (), prunes=False)]

    def begin(self) -> None:
        """Create the primary."""
        self.user.prepare()
        self.user.write_primary(THING, "a", {"options": ["o1"], "size": 1})

    async def happen(self) -> None:
        """Let the case happen."""
        await asyncio.sleep(_SETTLE_SECONDS)
        kept = [self.path(suffix) for suffix in await self.case.script(self)]
        deleted = {made.path for made in self.oracles.deletions}
        if gone := [path for path in kept if path not in self.truth.living or path in deleted]:
            self.oracles.find(f"is gone, although it must stay: {gone}")

    def path(self, suffix: str) -> str:
        """Return the path of an item."""
        return next(item.path("a") for item in self.case.items if item.suffix == suffix)

    @property
    def primary(self) -> RawObject:
        """The primary."""
        [obj] = self.server.objects(THING.gvk)
        return obj

    async def edit(self, *options: str, seconds: float = _LONG_SECONDS, **fields: Any) -> None:
        """Edit the spec, and wait."""
        self.user.write_spec(self.primary, {"options": list(options), "size": 1, **fields})
        await asyncio.sleep(seconds)

    async def run_again(self, times: int = 1) -> None:
        """Request runs, one after the other."""
        for _ in range(times):
            self.user.annotate_primary(self.primary, {"rolecall.dev/reconcile-requested-at": str(self.truth.now())})
            await asyncio.sleep(4.0)


async def _copied(history: KeptHistory) -> tuple[str, ...]:
    history.user.copy(history.path("x"), "a-y")
    await history.edit("o1", "o2", seconds=_SETTLE_SECONDS)
    await history.edit("o1")
    return "x", "y"


async def _made_before(history: KeptHistory) -> tuple[str, ...]:
    history.user.make_owned(history.case.items[1], history.primary)
    await history.edit("o2", size=7, seconds=_SETTLE_SECONDS)
    await history.run_again(3)
    await history.edit()
    return ("x",)


async def _restored(history: KeptHistory) -> tuple[str, ...]:
    history.user.restore_at_once(history.truth.living[history.path("x")])
    await history.run_again(2)
    await history.edit()
    return ("x",)


async def _restored_after_its_deletion(history: KeptHistory) -> tuple[str, ...]:
    made = history.truth.living[history.path("x")]
    await history.edit()
    history.oracles.deletions.clear()  # this one was right
    history.user.restore(made.obj)
    await history.edit("o1", seconds=_SETTLE_SECONDS)
    await history.edit()
    return ("x",)


async def _restored_without_inventory(history: KeptHistory) -> tuple[str, ...]:
    history.user.restore_at_once(history.truth.living[history.path("x")])
    history.user.annotate_primary(history.primary, {INVENTORY_ANNOTATION: None})
    await history.run_again(3)
    await history.edit()
    return ("x",)


async def _owned_by_two(history: KeptHistory) -> tuple[str, ...]:
    history.user.share(history.truth.living[history.path("x")])
    await history.edit()
    return ("x",)


async def _edited_elsewhere(history: KeptHistory) -> tuple[str, ...]:
    await history.edit("o1", size=5)
    return "x", "base"


async def _needs_stable_runs(history: KeptHistory) -> tuple[str, ...]:
    await history.edit()
    return ("base",)


async def _released(history: KeptHistory) -> tuple[str, ...]:
    model = history.models["Thing"]
    history.change_role(model, replace(model.state, release=2, left_out=frozenset({"x"})))
    await history.run_again(8)
    return ("x",)


async def _switched_off(history: KeptHistory) -> tuple[str, ...]:
    await history.edit()
    return ("x",)


async def _forged(history: KeptHistory) -> tuple[str, ...]:
    await history.edit("o1", ways={"x": Way.DRY_RUN}, seconds=_SETTLE_SECONDS)
    found = json.loads(annotation_of(history.primary, INVENTORY_ANNOTATION) or "{}")
    for row in found["objects"]:
        if row[3] == "a-x":
            row[1], row[7] = "things", 1
    history.truth.forged.add(history.primary["metadata"]["uid"])
    history.user.annotate_primary(history.primary, {INVENTORY_ANNOTATION: json.dumps(found)})
    await history.restart()  # a process that has written the note itself doesn't believe another one
    await history.run_again(8)
    return ("x",)


async def _shared(history: KeptHistory) -> tuple[str, ...]:
    history.user.write_primary(USER, "b", {"uses": [history.path("x")]})
    await asyncio.sleep(_SETTLE_SECONDS)
    history.user.delete_at(path_of(USER, NAMESPACE, "b"))
    await history.restart()
    await history.edit()
    return ("x",)


async def _kept_by_user(history: KeptHistory) -> tuple[str, ...]:
    history.user.opt_out(history.truth.living[history.path("x")])
    await history.edit("o1", size=7, seconds=_SETTLE_SECONDS)
    await history.edit()
    return ("x",)


async def _kept_by_kubectl(history: KeptHistory) -> tuple[str, ...]:
    history.user.apply(history.truth.living[history.path("x")], keeps=True)
    await history.edit("o1", size=7, seconds=_SETTLE_SECONDS)
    await history.edit()
    return ("x",)


def _requested(way: Way) -> Script:
    async def script(history: KeptHistory) -> tuple[str, ...]:
        await history.edit("o1", ways={"x": str(way)})
        return ("x",)

    return script


async def _changed(history: KeptHistory) -> tuple[str, ...]:
    await history.edit(seconds=10.0)
    history.user.label_object(history.truth.living[history.path("x")])
    await asyncio.sleep(_LONG_SECONDS)
    return ("x",)


async def _named_before(history: KeptHistory) -> tuple[str, ...]:
    while len(history.truth.runs) % 8 != 4:
        await history.run_again()
    await history.edit("o1", ways={"x": str(Way.SELDOM)}, seconds=4.0)
    await history.run_again(9)
    return ("x",)


def _closed(gate: Gate) -> Script:
    async def script(history: KeptHistory) -> tuple[str, ...]:
        history.user.set_gate(gate, is_open=False)
        await history.edit("o1", size=5)
        return ("x",)

    return script


async def _confirmed_wrongly(history: KeptHistory) -> tuple[str, ...]:
    await history.edit()
    history.user.annotate_primary(history.primary, {"rolecall.dev/confirm-prune": "0123456789abcdef"})
    await asyncio.sleep(_LONG_SECONDS)
    return ("x",)


def _jumped(seconds: float) -> Script:
    async def script(history: KeptHistory) -> tuple[str, ...]:
        await history.edit(seconds=6.0)
        history.replicas[0].clock.offset_seconds += seconds
        await history.run_again(8)
        return ("x",)

    return script


async def _labeled(history: KeptHistory) -> tuple[str, ...]:
    history.user.annotate_primary(history.primary, {}, labels={"tier": "1"})
    await history.run_again(8)
    return ("x",)


async def _edited_at_last(history: KeptHistory) -> tuple[str, ...]:
    """Switch the option on again between the last run and the deletion."""
    before = len(history.truth.runs)
    await history.edit(seconds=0.0)
    for _ in range(10_000):
        last = history.truth.runs[-1]
        if len(history.truth.runs) == before + 3 and last.ended is not None:
            await history.edit("o1")
            break
        await asyncio.sleep(0.001)
    return ("x",)


async def _many(history: KeptHistory) -> tuple[str, ...]:
    await history.edit("o1", size=2)
    return ("base",)


def _x(method: Method = Method.POST, **options: Any) -> tuple[Item, ...]:
    return _BASE, Item(_CONFIG_MAP, "x", "o1", method, **options)


KEPT: Final[dict[str, KeptCase]] = {
    "copy of a made object": KeptCase(_copied, (*_x(), Item(_CONFIG_MAP, "y", "o2"))),
    "object made before": KeptCase(_made_before, (_BASE, Item(_SERVICE, "x", "o2", Method.PUT))),
    "restored object": KeptCase(_restored),
    "object restored after its deletion": KeptCase(_restored_after_its_deletion),
    "restored object without inventory": KeptCase(_restored_without_inventory),
    "second owner": KeptCase(_owned_by_two),
    "edit of another field": KeptCase(_edited_elsewhere),
    "two runs": KeptCase(_needs_stable_runs),
    "edit before the deletion": KeptCase(_edited_at_last),
    "release": KeptCase(_released),
    "mode report": KeptCase(_switched_off, mode="report"),
    "forged plural": KeptCase(_forged),
    "object of two primaries": KeptCase(_shared),
    "opt-out and PUT": KeptCase(_kept_by_user, _x(Method.PUT)),
    "opt-out and apply: true": KeptCase(_kept_by_kubectl, _x(Method.MERGE)),
    **{f"way {way}": KeptCase(_requested(way)) for way in Way if way != Way.SELDOM},
    "named before": KeptCase(_named_before),
    "changed object": KeptCase(_changed, after_seconds=20),
    **{
        f"gate {gate}": KeptCase(_closed(gate), _x(gate=gate)) for gate in Gate if gate not in (Gate.NONE, Gate.OUTSIDE)
    },
    "another confirmation": KeptCase(_confirmed_wrongly, mode="report"),
    "last object": KeptCase(_switched_off, (Item(_CONFIG_MAP, "x", "o1"),)),
    "clock jumps ahead": KeptCase(_jumped(86_400.0), after_seconds=300),
    "clock jumps back": KeptCase(_jumped(-7_200.0), after_seconds=20),
    "label": KeptCase(_labeled, _x(is_by_label=True)),
    "long inventory": KeptCase(_many, (_BASE, *(Item(_CONFIG_MAP, f"part{number}") for number in range(8)))),
}


class AnyKeptHistory(KeptHistory):
    """The history of the case with the number of the seed."""

    def __init__(self, seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self.case = list(KEPT.values())[seed % len(KEPT)]
        super().__init__(seed, root, options, loop)


def play_kept(name: str, root: Path) -> Report:
    """Play a case, and return what it has found."""
    history = type("History", (KeptHistory,), {"case": KEPT[name]})
    return play(1, root, Options(fault_rate=0.0, replicas=1), history)
