"""The verdict of a trial follows from how the second operator ended, and from the end state."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from rolecall.runner.record.run_record import RunRecord
from rolecall.workbench.comparison.end_states import EndState, ObjectId
from rolecall.workbench.crashtest.object_under_test import Interrupted, ObjectUnderTest, Snapshot, Uninterrupted
from rolecall.workbench.crashtest.results import Verdict
from rolecall.workbench.crashtest.simulated_operator import Limits, Outcome, SettleResult
from rolecall.workbench.crashtest.tester import Trials
from rolecall.workbench.crashtest.write_log import Write
from rolecall.workbench.plan.sandbox import SandboxState
from rolecall.workbench.plan.sandbox_import import Importer
from tests.unit.workbench.comparison.end_objects import SECRET, config_map, object_of, state

STARTED = datetime(2026, 11, 24, 12, tzinfo=UTC)
WRITES = (Write("POST", "/api/v1/namespaces/ns/configmaps", "a"), Write("PUT", "/api/v1/namespaces/ns/configmaps/a"))
SNAPSHOTS = tuple(
    Snapshot(SandboxState(revision, cast("Importer", None), needs_controllers=False), {}, {}, frozenset(), ())
    for revision in (1, 2)
)
SAME = state(config_map(text="x"))
OTHER = state(config_map(text="y"))


def uninterrupted(
    end: EndState, *, is_unchanging: bool = True, stopped_at: str = "", seconds: float = 1
) -> Uninterrupted:
    """Return the work of an operator that was not killed."""
    return Uninterrupted(WRITES, end, (), STARTED, seconds, is_unchanging, stopped_at, SNAPSHOTS)


@dataclass
class FakeObject:
    """An object whose interrupted work ends in a given way."""

    end: EndState
    result: SettleResult
    secrets: dict[str, None] = field(default_factory=dict)
    limits: list[Limits] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    directories: list[Path] = field(default_factory=list)

    async def interrupted(
        self,
        snapshot: Snapshot,
        limits: Limits,
        objects: Iterable[ObjectId],
        is_expected: Callable[[Interrupted], bool],
        *,
        until_unchanged: bool,
    ) -> Interrupted:
        """Return the work; see ``ObjectUnderTest``."""
        self.snapshots.append(snapshot)
        self.limits.append(limits)
        work = Interrupted(self.result, self.end, (), STARTED, 1.0)
        assert is_expected(work) is (self.end == SAME)
        assert list(objects) == list(SAME)
        assert until_unchanged
        return work

    async def write_records(self, _records: Iterable[RunRecord], directory: Path) -> None:
        """Note the directory of the records."""
        self.directories.append(directory)


def as_object(tested: FakeObject) -> ObjectUnderTest:
    """Return it with the type that it replaces."""
    return cast("ObjectUnderTest", tested)


def trials_of(tested: FakeObject, first: Uninterrupted | None = None, second: Uninterrupted | None = None) -> Trials:
    """Return the trials of an object."""
    return Trials(as_object(tested), first or uninterrupted(SAME), second or uninterrupted(SAME))


@pytest.mark.parametrize(
    ("outcome", "end", "verdict"),
    [
        (Outcome.SETTLED, SAME, Verdict.SAME),
        (Outcome.SETTLED, OTHER, Verdict.DIFFERS),
        (Outcome.STUCK, SAME, Verdict.STUCK),
        (Outcome.ENDLESS, SAME, Verdict.ENDLESS),
    ],
)
async def test_verdict_follows_from_outcome_and_end_state(
    outcome: Outcome, end: EndState, verdict: Verdict, tmp_path: Path
) -> None:
    tested = FakeObject(end, SettleResult(outcome, "because"))
    trial = await trials_of(tested).at(2, tmp_path, as_object(tested))
    assert (trial.number, trial.write, trial.verdict) == (2, WRITES[1], verdict)
    assert bool(trial.differences) is (verdict is Verdict.DIFFERS)
    assert bool(trial.message) is (outcome is not Outcome.SETTLED)
    assert tested.snapshots == [SNAPSHOTS[1]]


async def test_records_of_bad_trials_are_kept(tmp_path: Path) -> None:
    good, bad = FakeObject(SAME, SettleResult(Outcome.SETTLED)), FakeObject(OTHER, SettleResult(Outcome.SETTLED))
    assert (await trials_of(good).at(1, tmp_path, as_object(good))).records is None
    assert (await trials_of(bad).at(1, tmp_path, as_object(bad))).records == tmp_path / "write-1"
    assert (good.directories, bad.directories) == ([], [tmp_path / "write-1"])


def test_values_of_secrets_are_hidden() -> None:
    def end(text: str) -> EndState:
        return state(config_map(text=text), object_of(SECRET, "s", data={"password": "alpha-bravo", "short": "x"}))

    tested = FakeObject(SAME, SettleResult(Outcome.SETTLED))
    trials = trials_of(tested, uninterrupted(end("x")), uninterrupted(end("x")))
    assert tested.secrets == {"alpha-bravo": None, "x": None}
    assert trials.show("rejected alpha-bravo x") == "rejected (sensitive) x"


def test_object_of_one_uninterrupted_run_is_noted() -> None:
    tested = FakeObject(SAME, SettleResult(Outcome.SETTLED))
    [note] = trials_of(tested, second=uninterrupted(state(*SAME.items(), config_map("b")))).notes()
    assert note == "ConfigMap ns/b exists after one of two uninterrupted runs, and isn't compared"


def test_role_that_never_settles_is_noted_unless_it_is_incomplete() -> None:
    tested = FakeObject(SAME, SettleResult(Outcome.SETTLED))
    [note] = trials_of(tested, uninterrupted(SAME, is_unchanging=False)).notes()
    assert note.startswith("Every run of the role changes something")
    assert trials_of(tested, uninterrupted(SAME, is_unchanging=False, stopped_at="Ask")).notes() == []


async def test_trial_has_time_for_all_its_rounds(tmp_path: Path) -> None:
    tested = FakeObject(SAME, SettleResult(Outcome.SETTLED))
    await trials_of(tested, second=uninterrupted(SAME, seconds=20)).at(1, tmp_path, as_object(tested))
    await trials_of(tested).at(1, tmp_path, as_object(tested))
    assert tested.limits == [Limits(630.0, 40.0), Limits(60.0, 15.0)]
