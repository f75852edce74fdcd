"""A reconciler with all its collaborators except Ansible: each test provides the play."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.reconcile.kubernetes_events import EventReporter, EventSpec
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.status import Readiness
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.outcome import Counts, Outcome, TaskFailure
from rolecall.runner.runs.own_writes import OwnWrites, SelfTriggers
from rolecall.runner.runs.process import OnEvent, RunSpec
from rolecall.runner.serving.metrics import OperatorMetrics
from tests.support.things import THING
from tests.support.world import World

FINALIZER = "test.rolecall.dev/finalizer"
DEFAULT_PERIOD_SECONDS = 36000.0
SUCCESS = Outcome("successful", rc=0, counts=Counts(ok=2, changed=1), completion="2026-01-01T12:00:00+00:00")
FAILURE = Outcome(
    "failed",
    rc=2,
    failures=(TaskFailure("Boom", "localhost", "no more coffee"),),
    counts=Counts(ok=1, failures=1),
    completion="2026-01-01T12:00:00+00:00",
)

Play = Callable[[], Awaitable[None]]


async def do_nothing() -> None:
    """Be a play that does nothing."""


@dataclass(slots=True)
class ScriptedRunner:
    """Plays ``play``, then returns ``outcome``; records the jobs and the extra vars of each."""

    outcome: Outcome = SUCCESS
    play: Play = do_nothing
    jobs: list[RunSpec] = field(default_factory=list)

    async def run(self, job: RunSpec, _on_event: OnEvent) -> Outcome:
        """Run the script."""
        self.jobs.append(job)
        await self.play()
        return self.outcome


@dataclass(slots=True)
class Rig:
    """One object of the kind Thing, called ``one``, and what reconciles it."""

    world: World
    runner: ScriptedRunner
    own_writes: OwnWrites
    self_triggers: SelfTriggers
    events: list[EventSpec]
    reports: list[str]
    metrics: OperatorMetrics
    reconciler: Reconciler
    known: dict[ObjectKey, Entry]
    """What the informer has."""

    @property
    def key(self) -> ObjectKey:
        """The key of the object."""
        return self.world.key("one")

    @property
    def runs(self) -> int:
        """The number of starts of the play."""
        return len(self.runner.jobs)

    async def reconcile(self) -> Result:
        """Reconcile the object once."""
        return await self.reconciler.reconcile(self.key, (Cause("test"),))

    async def thing(self) -> RawObject:
        """Return the object as it is now."""
        return await self.world.get(THING, "one")

    async def conditions(self) -> dict[str, tuple[str, str, str]]:
        """Return status, reason and message of each condition, by type."""
        found = ((await self.thing()).get("status") or {}).get("conditions") or []
        return {item["type"]: (item["status"], item["reason"], item["message"]) for item in found}


def make_rig(world: World, root: Path, may_write: Callable[[], bool] = lambda: True, **watch: Any) -> Rig:
    """Make a rig; ``watch`` are fields of the watch."""
    own_writes = OwnWrites()
    runner = ScriptedRunner()
    watched = replace(Watch(THING, RoleContent(root / "roles" / "thing")), **watch)
    self_triggers = SelfTriggers(THING, own_writes)
    events: list[EventSpec] = []
    reports: list[str] = []
    metrics = OperatorMetrics("test", [THING])
    known: dict[ObjectKey, Entry] = {}
    primaries = Primaries(world.client, THING, own_writes, may_write, known.get)
    reconciler = Reconciler(
        watch=watched,
        primaries=primaries,
        launcher=Launcher(
            watched, Settings(), runner, root, world.client, Proxy(world.client), own_writes, lambda *_: None
        ),
        status=StatusWriter(
            primaries, Readiness.of_watch(watched, default=False), lambda _, text: reports.append(text)
        ),
        self_triggers=self_triggers,
        events=EventReporter(lambda _obj, event: events.append(event)),
        default_period_seconds=DEFAULT_PERIOD_SECONDS,
        metrics=metrics.controller(THING, workers=1),
    )
    return Rig(world, runner, own_writes, self_triggers, events, reports, metrics, reconciler, known)


def finalizer(**variables: Any) -> Finalizer:
    """Return a finalizer that runs the main role with further variables."""
    return Finalizer(FINALIZER, None, variables or {"state": "absent"})
