"""Plans one object: reconciles it in the shadow until nothing is left to do.

The reconcile is repeated, as it would be, when the role asks for it, and when the controllers of the shadow have
changed what a run has written and the operator would have watched it.
"""

import os
import time
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.run_record import RunRecord
from rolecall.workbench.plan.changes import Changes
from rolecall.workbench.plan.convergence import SETTLES_WITHIN_SECONDS, Written, settled
from rolecall.workbench.plan.reconciles import PlannedReconciles
from rolecall.workbench.plan.results import ObjectPlan
from rolecall.workbench.plan.run_secrets import secrets_of

MAX_ROUNDS: Final = 10


@dataclass(slots=True)
class PlannedObject:
    """One object of the shadow, whose reconciles are being planned."""

    reconciles: PlannedReconciles
    assumptions: dict[str, None] = field(default_factory=dict)

    async def plan(self) -> ObjectPlan:
        """Return the plan; the object must have been imported. Raises KubeError, PlanError."""
        started = time.time()
        watch, key, runs = self.reconciles.watch, self.reconciles.key, self.reconciles.runs
        changes = Changes(self.reconciles.world.gate.register(watch.gvk, key))
        before = await self._status()
        causes: tuple[Cause, ...] = ()
        result, rounds, has_settled = Result(), 0, False
        while rounds < MAX_ROUNDS and not has_settled:
            known = len(runs.records)
            result = await self.reconciles.reconcile(causes)
            rounds += 1
            written = [each for record in runs.records[known:] for each in self._take(changes, record)]
            is_over = result.failed or bool(self.reconciles.stopped_at)
            causes = () if is_over else await self._next_causes(written)
            has_settled = not causes
        return ObjectPlan(
            gvk=watch.gvk,
            key=key,
            changes=changes.objects(),
            writes=tuple(changes.writes),
            status_before=before,
            status_after=await self._status(),
            requeue_after_seconds=result.requeue_after_seconds,
            rounds=rounds,
            has_settled=has_settled,
            stopped_at=self.reconciles.stopped_at,
            failure=self._failure(result),
            assumptions=tuple(self.assumptions),
            withheld=tuple(self.reconciles.withheld),
            secrets=secrets_of(watch, runs.records, os.environ),
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
        summary = self.reconciles.last_summary
        if summary is not None and (summary.requeue_at is not None or summary.requeue_after_seconds is not None):
            return (Cause("requeue_after"),)
        found = await settled(self.reconciles.world.client, written)
        within = f"was not ready in the shadow within {SETTLES_WITHIN_SECONDS:.0f} s"
        self.assumptions |= dict.fromkeys(f"{each.gvk.kind} {each.key} {within}" for each in found.unfinished)
        return tuple(Cause(f"dependent {each.gvk.kind} {each.key} changed") for each in found.changed[:1])

    def _failure(self, result: Result) -> str:
        if not result.failed:
            return ""
        summary = self.reconciles.last_summary
        return (summary.message if summary else "") or "the reconcile failed; its status says why"

    def _watches(self, gvk: GVK) -> bool:
        """Return whether the operator would watch a kind because of the runs of this object, or anyway."""
        watch, dependents = self.reconciles.watch, self.reconciles.dependents
        follows = gvk in dependents and watch.watch_dependent_resources and gvk not in watch.blacklist
        return follows or any(trigger.gvk == gvk for trigger in watch.triggers)

    async def _status(self) -> RawObject:
        try:
            obj = await self.reconciles.world.client.get(self.reconciles.watch.gvk, self.reconciles.key)
        except NotFoundError:
            return {}
        status = obj.get("status")
        return status if isinstance(status, dict) else {}
