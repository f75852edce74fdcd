"""The work of an operator ends as settled, stuck, or endless, depending on what its runs change."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import Cause
from rolecall.workbench.comparison.end_states import ObjectId
from rolecall.workbench.crashtest.simulated_operator import Limits, Outcome, SimulatedOperator
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.plan.reconciles import PlanContext

THING = GVK("test.rolecall.dev", "v1", "Thing")
RESOURCE = ApiResource(THING, "things", namespaced=True, verbs=frozenset(), subresources=frozenset())
PRIMARY = {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": {"name": "one", "namespace": "ns"}}


@dataclass(slots=True)
class Scripted(SimulatedOperator):
    """An operator whose runs change something or fail as given; after the last one, a run never ends."""

    runs: list[tuple[bool, bool]] = field(default_factory=list)

    async def _reconcile(self, _causes: tuple[Cause, ...]) -> Result:
        if not self.runs:
            await asyncio.get_running_loop().create_future()
        changes, fails = self.runs.pop(0)
        self.log.run_changes += changes
        return Result(failed=fails)

    async def _versions(self) -> dict[ObjectId, str]:
        return {}

    async def _generation(self) -> int:
        return 1

    async def _next_causes(self, _seen: dict[ObjectId, str]) -> tuple[Cause, ...]:
        return ()


def operator_of(runs: Sequence[tuple[bool, bool]]) -> Scripted:
    """Return an operator whose runs change something, and fail, as given."""
    context = SimpleNamespace(interceptor=SimpleNamespace(before_write={}))
    log, watch = WriteLog(resource=RESOURCE, primary=PRIMARY), SimpleNamespace(gvk=THING)
    return Scripted(cast("PlanContext", context), cast("Watch", watch), log, Limits(0.01, 1.0), runs=[*runs])


CHANGING, QUIET, FAILING = (True, False), (False, False), (False, True)


async def test_role_that_changes_something_until_the_time_is_over_is_endless() -> None:
    for count in range(2, 6):
        result = await operator_of([CHANGING] * count).settle(until_unchanged=True, max_rounds=12)
        assert result.outcome is Outcome.ENDLESS


async def test_role_whose_first_run_never_ends_is_stuck() -> None:
    assert (await operator_of([]).settle(until_unchanged=True)).outcome is Outcome.STUCK


async def test_changes_that_nothing_requires_are_counted() -> None:
    operator = operator_of([CHANGING, CHANGING, CHANGING, QUIET])
    assert (await operator.settle(until_unchanged=True)).outcome is Outcome.SETTLED
    assert operator.unasked_changes == 2


@given(st.lists(st.sampled_from([CHANGING, QUIET, FAILING]), max_size=12))
async def test_role_that_succeeds_with_changes_until_the_end_is_never_stuck(runs: list[tuple[bool, bool]]) -> None:
    operator = operator_of(runs)
    result = await operator.settle(until_unchanged=True)
    if runs[-2:] == [CHANGING, CHANGING] and not operator.runs:
        assert result.outcome is Outcome.ENDLESS
