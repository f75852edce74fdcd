"""The work of one operator process for one object: reconciles until nothing remains to be done.

The rounds are those of an operator: again when the role requests it, at most a second later, when controllers have
changed what the operator watches, and after a failure. A role that requests every next run has settled when two rounds
have changed nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from rolecall.kube.connection import Request, read_object
from rolecall.kube.metadata import generation_of, resource_version_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import Cause
from rolecall.workbench.comparison.end_states import ObjectId
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.plan.convergence import WrittenVersion
from rolecall.workbench.plan.model import ABSENT
from rolecall.workbench.plan.reconciles import PlanContext, PlannedReconciles

StateCheck = Callable[[], Awaitable[bool]]
MAX_ROUNDS: Final = 30
MAX_REQUEUE_SECONDS: Final = 1.0
"""A requested run that is due later starts after this time."""

_PERIOD: Final = (Cause("period"),)
_QUIET_ROUNDS: Final = 2
"""So many rounds without a change, one after the other, would go on without one."""


class Outcome(StrEnum):
    """How the work of an operator ended."""

    SETTLED = "settled"
    STUCK = "stuck"
    ENDLESS = "endless"


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The outcome of an operator's work, and for a stuck or endless one the reason."""

    outcome: Outcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The seconds that an operator may work, and that a task may wait for an object."""

    seconds: float
    wait_seconds: float


@dataclass(slots=True)
class SimulatedOperator:
    """One operator process; a new one knows nothing of its predecessor."""

    context: PlanContext
    watch: Watch
    log: WriteLog
    limits: Limits
    reconciles: PlannedReconciles = field(init=False)
    unasked_changes: int = 0
    """How many runs have changed something although none was due."""

    _changing: int = 0
    """How many of the last runs have succeeded, and changed something."""

    def __post_init__(self) -> None:
        """Let the log receive all writes."""
        key = self.log.primary_id.key
        self.reconciles = PlannedReconciles(
            self.context,
            self.watch,
            key,
            own_writes=self.log,
            max_wait_seconds=self.limits.wait_seconds,
        )
        self.context.interceptor.before_write[self.watch.gvk, key] = self.log.before_write

    async def settle(
        self, *, until_unchanged: bool, max_rounds: int = MAX_ROUNDS, is_expected: StateCheck | None = None
    ) -> SettleResult:
        """Work until no reconcile is due, and with ``until_unchanged`` until one has changed nothing.

        ``is_expected`` returns whether the state is one that the role is known to leave unchanged; then the run that
        would show this is saved. **A role that succeeds, and changes something again and again, is never stuck**: if it
        takes too long, it is endless. Raises KubeError and PlanError.
        """
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._settle(max_rounds, is_expected, until_unchanged=until_unchanged)
        except TimeoutError:
            if self._changing >= _QUIET_ROUNDS:
                return SettleResult(Outcome.ENDLESS, f"still changes after {self.limits.seconds:.0f} s")
            records = self.reconciles.recorder.records
            task = records[-1].unfinished_task if records else None
            where = f" at the task {task.name!r} ({task.path})" if task else ""
            return SettleResult(Outcome.STUCK, f"had not settled after {self.limits.seconds:.0f} s{where}")

    async def _settle(self, max_rounds: int, is_expected: StateCheck | None, *, until_unchanged: bool) -> SettleResult:
        causes: tuple[Cause, ...] = ()
        quiet, failure, self.unasked_changes, self._changing = 0, "", 0, 0
        for _ in range(max_rounds):
            changes, seen, generation = self.log.run_changes, await self._versions(), await self._generation()
            known = dict(self.log.objects)
            result = await self._reconcile(causes)
            if self.reconciles.stopped_at:
                return SettleResult(Outcome.SETTLED)
            quiet = quiet + 1 if self.log.run_changes == changes else 0
            self._changing = 0 if quiet or result.failed else self._changing + 1
            self.unasked_changes += causes == _PERIOD and self._changing > 0
            own = {ident: version for ident, version in self.log.objects.items() if version != known.get(ident)}
            causes = await self._next_causes(seen | own)
            if not causes and await self._generation() > generation:
                causes = (Cause("its own run changed its spec"),)
            if result.failed:
                failure = self.reconciles.failure
                if quiet >= _QUIET_ROUNDS:
                    return SettleResult(Outcome.STUCK, failure)
                causes = (Cause("retry"),)
                continue
            failure = ""
            if not causes and until_unchanged and not quiet:
                if is_expected is not None and await is_expected():
                    return SettleResult(Outcome.SETTLED)
                causes = _PERIOD
            elif not causes or (quiet >= _QUIET_ROUNDS and not self.reconciles.prunes_next):
                return SettleResult(Outcome.SETTLED)
        return (
            SettleResult(Outcome.STUCK, failure)
            if failure
            else SettleResult(Outcome.ENDLESS, f"still changes after {max_rounds} runs")
        )

    async def _reconcile(self, causes: tuple[Cause, ...]) -> Result:
        """Reconcile once, and name the tasks of its writes."""
        first = len(self.log.writes)
        result, _ = await self.reconciles.reconcile(causes)
        for record in self.reconciles.recorder.records[-1:]:
            self.log.writes[first:] = [each.of_task_in(record) for each in self.log.writes[first:]]
        return result

    async def _versions(self) -> dict[ObjectId, str]:
        """Return the current versions of the written objects that still exist."""
        found = {ident: await stored(self.context, ident) for ident, version in self.log.objects.items() if version}
        return {ident: resource_version_of(obj[1]) for ident, obj in found.items() if obj}

    async def _generation(self) -> int:
        """Return the generation of the primary, 0 if it does not exist."""
        found = await stored(self.context, self.log.primary_id)
        return generation_of(found[1]) if found else 0

    async def _next_causes(self, seen: dict[ObjectId, str]) -> tuple[Cause, ...]:
        """Return why the operator would reconcile again; ``seen`` are the versions that the last run has seen."""
        outcome = self.reconciles.last_outcome
        if causes := self.reconciles.requeue_causes:
            delay = outcome.requeue_after_seconds or (outcome.requeue_at or 0.0) - time.time()
            await asyncio.sleep(max(0.0, min(delay, MAX_REQUEUE_SECONDS)))
            return causes
        written = []
        for ident, version in seen.items():
            resource = await self.context.client.resource_for_path(ident.group, ident.version, ident.plural)
            if version and resource:
                written.append(WrittenVersion(resource.gvk, ident.key, version))
        return await self.reconciles.controller_causes(written)


async def stored(context: PlanContext, ident: ObjectId) -> tuple[GVK, RawObject] | None:
    """Return an object of the sandbox with its kind, None if it does not exist. Raises KubeError."""
    resource = await context.client.resource_for_path(ident.group, ident.version, ident.plural)
    if resource is None or resource.is_virtual:
        return None
    try:
        body = await context.client.receive(Request("GET", resource.path_of(ident.key)))
    except ABSENT:
        return None
    return resource.gvk, read_object(body, resource.plural)
