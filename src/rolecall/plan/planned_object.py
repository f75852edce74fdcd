"""Plans one object: reconciles it in the shadow, as the operator would, until nothing is left to do.

The reconcile is the operator's own, with its conditions, finalizers and periods. It is repeated, as it would be, when
the role asks for it, and when the controllers of the shadow have changed what a run has written and the operator would
have watched it.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rolecall.config.settings import Settings
from rolecall.config.watches import Watch
from rolecall.controller.controller import Result
from rolecall.controller.work_queue import Cause
from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.plan.baselines import PlanGate
from rolecall.plan.changes import Changes
from rolecall.plan.results import ObjectPlan
from rolecall.plan.run_secrets import secrets_of
from rolecall.plan.settling import Written, changed_by_controllers
from rolecall.proxy import Ownership, Proxy
from rolecall.reconcile.event_recorder import EventSpec
from rolecall.reconcile.event_reporter import EventReporter
from rolecall.reconcile.primaries import Primaries
from rolecall.reconcile.reconciler import Reconciler
from rolecall.reconcile.self_triggers import OwnWrites, SelfTriggers
from rolecall.reconcile.status_writer import StatusWriter
from rolecall.record.bodies import Bodies
from rolecall.record.run_record import Ending, RunRecord
from rolecall.runs.api_access import ApiAccess
from rolecall.runs.events import RunSummary
from rolecall.runs.launcher import Launcher
from rolecall.runs.runner import Runner

MAX_ROUNDS: Final = 10
ROOM_BYTES: Final = 256 << 20
"""What the bodies of one run may take."""


@dataclass(frozen=True, slots=True)
class PlanWorld:
    """What all planned objects share: the shadow's client, the proxy before it, and what runs roles."""

    settings: Settings
    client: Client
    proxy: Proxy
    gate: PlanGate
    runner: Runner
    root: Path


@dataclass(slots=True)
class KeptRuns:
    """Keeps the records of planned runs, whole and in memory."""

    records: list[RunRecord] = field(default_factory=list)

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Return the record of a run that starts now."""
        texts = tuple(cause.text for cause in causes)
        record = RunRecord(watch.gvk, obj, ident, Bodies(), ROOM_BYTES, texts)
        self.records.append(record)
        return record

    async def finish(self, _watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Keep how the reconcile ended."""
        record.ending = ending

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Keep what is known: a planned deletion is a part of the plan."""


@dataclass(slots=True)
class PlannedObject:
    """One object of the shadow, whose reconciles are being planned."""

    world: PlanWorld
    watch: Watch
    key: ObjectKey
    runs: KeptRuns = field(default_factory=KeptRuns)
    _dependents: set[GVK] = field(default_factory=set)

    async def plan(self, causes: tuple[Cause, ...] = ()) -> ObjectPlan:
        """Return the plan; the object must have been imported. Raises KubeError if the shadow fails."""
        started = time.time()
        changes = Changes(self.world.gate.register(self.watch.gvk, self.key))
        before = await self._status()
        reconciler = self.reconciler()
        result, rounds, has_settled = Result(), 0, False
        while rounds < MAX_ROUNDS and not has_settled:
            known = len(self.runs.records)
            result = await reconciler.reconcile(self.key, causes)
            rounds += 1
            written = [each for record in self.runs.records[known:] for each in self._take(changes, record)]
            causes = await self._next_causes(written)
            has_settled = not causes or result.failed
        return ObjectPlan(
            gvk=self.watch.gvk,
            key=self.key,
            changes=changes.objects(),
            writes=tuple(changes.writes),
            status_before=before,
            status_after=await self._status(),
            requeue_after_seconds=result.requeue_after_seconds,
            rounds=rounds,
            has_settled=has_settled,
            stopped_at=self._stopped_at(),
            failure=self._failure(result),
            secrets=secrets_of(self.watch, self.runs.records, os.environ),
            started=started,
            ended=time.time(),
        )

    def _take(self, changes: Changes, record: RunRecord) -> list[Written]:
        """Take note of a run; return what it has written of the kinds that would wake the object."""
        if not changes.add(record):
            return []
        latest = (each for each in changes.latest() if self._watches(each[0]))
        return [Written(gvk, key, resource_version_of(obj)) for gvk, key, obj in latest]

    async def _next_causes(self, written: list[Written]) -> tuple[Cause, ...]:
        """Return why the operator would reconcile the object again soon; empty if it would not."""
        if self._requests_requeue:
            return (Cause("requeue_after"),)
        changed = await changed_by_controllers(self.world.client, written)
        return tuple(Cause(f"dependent {each.gvk.kind} {each.key} changed") for each in changed[:1])

    def _stopped_at(self) -> str:
        """Return up to which task the plan is complete, and why; empty if it is complete."""
        problems = self.world.gate.shadow.problems
        for record in self.runs.records:
            for problem in (each for each in problems if each.ident == record.ident):
                task = next((each for each in record.tasks.values() if each.ident == problem.task), None)
                return f"{task.name if task else 'an unknown task'}: {problem.text}"
        return ""

    @property
    def _requests_requeue(self) -> bool:
        summary = self._last_summary
        return summary is not None and (summary.requeue_at is not None or summary.requeue_after_seconds is not None)

    @property
    def _last_summary(self) -> RunSummary | None:
        ending = self.runs.records[-1].ending if self.runs.records else None
        return ending.summary if ending else None

    def _failure(self, result: Result) -> str:
        if not result.failed:
            return ""
        summary = self._last_summary
        return (summary.message if summary else "") or "the reconcile failed; its status says why"

    def _watches(self, gvk: GVK) -> bool:
        """Return whether the operator would watch a kind because of the runs of this object, or anyway."""
        watch = self.watch
        follows = gvk in self._dependents and watch.watch_dependent_resources and gvk not in watch.blacklist
        return follows or any(trigger.gvk == gvk for trigger in watch.triggers)

    def _on_dependent(self, resource: ApiResource, _ownership: Ownership) -> None:
        self._dependents.add(resource.gvk)

    async def _status(self) -> RawObject:
        try:
            obj = await self.world.client.get(self.watch.gvk, self.key)
        except NotFoundError:
            return {}
        status = obj.get("status")
        return status if isinstance(status, dict) else {}

    def reconciler(self) -> Reconciler:
        """Return what reconciles the object as the operator would; ``runs`` keeps what its runs do."""
        world, watch, own_writes = self.world, self.watch, OwnWrites()
        access = ApiAccess(
            client=world.client,
            proxy=world.proxy,
            own_writes=own_writes,
            on_dependent=self._on_dependent,
            directory=world.root,
            inject_owner=world.settings.inject_owner_reference,
            uncached=watch.blacklist,
        )
        primaries = Primaries(world.client, watch.gvk, own_writes)
        return Reconciler(
            watch=watch,
            primaries=primaries,
            launcher=Launcher(watch, world.runner, access, world.settings, world.root),
            status=StatusWriter(primaries),
            self_triggers=SelfTriggers(watch.gvk, own_writes),
            events=EventReporter(_no_event),
            observer=_Unmeasured(),
            default_period_seconds=world.settings.reconcile_period_seconds,
            recorder=self.runs,
        )


class _Unmeasured:
    """Measures nothing: the runs of a plan are not the operator's."""

    def run_ended(self, summary: RunSummary) -> None:
        """Do nothing."""


def _no_event(_obj: RawObject, _event: EventSpec) -> None:
    """Write no Event: nobody would see it."""
