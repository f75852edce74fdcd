"""Comparisons of two runs by their writes, and the verdict about a record."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.runs.outcome import TaskFailure
from rolecall.workbench.comparison.reports import ExitCode
from rolecall.workbench.replay.comparison import BadRecord, Change, Replay, Replays, Verdict, compare, replay_of
from rolecall.workbench.replay.recorded_cluster import RecordSource
from rolecall.workbench.replay.writes import RunLines, writes_of
from tests.unit.workbench.replay.runs import (
    GONE,
    MAPS,
    PODS,
    ask,
    body,
    changes,
    compared,
    config_map,
    listed,
    post,
    record_of,
    run_of,
    stored,
)

PAIRS: dict[str, tuple[list[Exchange], list[Exchange], list[tuple[Change, str]]]] = {
    "equal writes": ([post(1), post(2, "b")], [post(1), post(2, "b")], []),
    "reads and dry runs": ([ask("GET", f"{MAPS}/a"), ask("POST", f"{MAPS}?dryRun=All", body(1), body(1), 201)], [], []),
    "another order of hosts": (
        [post(1, "a", "one@alpha"), post(2, "b", "one@beta")],
        [post(2, "b", "one@beta"), post(1, "a", "one@alpha")],
        [],
    ),
    "another value": ([post("1")], [post("2")], [(Change.CHANGED, "one")]),
    "one less": ([post("1"), post("2", "b", "two")], [post("1")], [(Change.MISSING, "two")]),
    "one more": ([post("1")], [post("1"), post("2", "b", "two")], [(Change.ADDITIONAL, "two")]),
    "another object": ([post("1")], [post("1", "b")], [(Change.MISSING, "one"), (Change.ADDITIONAL, "one")]),
    "another order": ([post("1"), post("2", "b")], [post("2", "b"), post("1")], [(Change.MOVED, "one")]),
    "another method": (
        [ask("PUT", f"{MAPS}/a", body("1"), body("1"))],
        [ask("PATCH", f"{MAPS}/a", body("1"), body("1"))],
        [(Change.MISSING, "one"), (Change.ADDITIONAL, "one")],
    ),
    "another query": (
        [ask("DELETE", f"{MAPS}/a?propagationPolicy=Orphan")],
        [ask("DELETE", f"{MAPS}/a")],
        [(Change.CHANGED, "one")],
    ),
    "another type": ([post(1)], [post("1")], [(Change.CHANGED, "one")]),
    "another field": (
        [ask("PATCH", f"{MAPS}/a", {"data": {"a": "1"}})],
        [ask("PATCH", f"{MAPS}/a", {"data": {"a": "1", "b": "2"}})],
        [(Change.CHANGED, "one")],
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_different_writes_are_found_with_their_task(case: str, tmp_path: Path) -> None:
    before, after, expected = PAIRS[case]
    assert changes(compared(tmp_path, before, after)) == expected


def test_writes_after_an_early_end_are_counted(tmp_path: Path) -> None:
    record = writes_of(RunLines.of_record(record_of(tmp_path, post("1"), post("2", "b"), post("3", "c"))))
    run = writes_of(RunLines.of_run(run_of(post("1"))))
    found = compare(record, run, has_ended_early=True)
    assert (found.differences, found.not_reached) == ([], 2)
    assert len(compare(record, run, has_ended_early=False).differences) == 2


def test_write_rejected_in_one_cluster_is_noted(tmp_path: Path) -> None:
    found = compared(tmp_path, [ask("POST", MAPS, body(1), {"kind": "Status"}, 403)], [post(1)])
    assert found.differences == []
    assert found.notes == [f"POST {MAPS} was rejected with 403 in the record, and is accepted with 201 in the sandbox"]


WRITE = ask("POST", MAPS, config_map("1"), config_map("1"), 201)
OTHER = ask("POST", MAPS, config_map("2"), config_map("2"), 201)
LAST = ask("DELETE", f"{MAPS}/b", None, GONE, 404)
NO_ROOM = TaskFailure("one", "localhost", "no room at 2027-01-15T08:00:00Z in /tmp/ansible-tmp-1/x")
NO_ROOM_LATER = replace(NO_ROOM, message="no room at 2027-01-15T08:00:02Z in /tmp/ansible-tmp-2/x")
BROKEN = TaskFailure("two", "localhost", "something else")
Run = tuple[Sequence[Exchange], Sequence[TaskFailure]]
"""The requests of a run, and its failures."""


def replayed(tmp_path: Path, then: Run, now: Run, **more: Any) -> Replay:
    record = stored(tmp_path, run_of(*then[0], failures=tuple(then[1])))
    return replay_of(record, run_of(*now[0], failures=tuple(now[1])), RecordSource(record), **more)


VERDICTS: dict[str, tuple[Run, Run, Verdict]] = {
    "the same": (([WRITE], []), ([WRITE], []), Verdict.SAME),
    "the same failure": (([WRITE], [NO_ROOM]), ([WRITE], [NO_ROOM_LATER]), Verdict.SAME),
    "other writes": (([WRITE], []), ([OTHER], []), Verdict.DIFFERENT),
    "fixed": (([WRITE], [NO_ROOM]), ([WRITE, LAST], []), Verdict.DIFFERENT),
    "a new failure": (([WRITE, LAST], []), ([WRITE], [NO_ROOM]), Verdict.FAILED),
    "another failure": (([WRITE], [NO_ROOM]), ([WRITE], [BROKEN]), Verdict.FAILED),
    "the same failure after other writes": (([WRITE], [NO_ROOM]), ([OTHER], [NO_ROOM]), Verdict.FAILED),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_verdict_depends_on_writes_and_failure(case: str, tmp_path: Path) -> None:
    then, now, expected = VERDICTS[case]
    assert replayed(tmp_path, then, now).verdict is expected


def test_incomplete_replay_misses_no_later_writes(tmp_path: Path) -> None:
    found = replayed(tmp_path, ([WRITE, LAST], []), ([WRITE], [BROKEN]), stopped_at="3: ask: uses a command")
    assert (found.verdict, found.differences, found.not_reached) == (Verdict.INCOMPLETE, (), 1)
    assert found.failure == "", "the replay itself ends the run that way"


STATUSES: dict[str, tuple[dict[str, Any], dict[str, Any], Verdict]] = {
    "the same": ({"ready": 1, "at": "2020-01-01"}, {"ready": 1, "at": "2020-01-01"}, Verdict.SAME),
    "another value": ({"ready": 1, "at": "2020-01-01"}, {"ready": 2, "at": "2020-01-01"}, Verdict.DIFFERENT),
    "another duration": ({"timing": {"sayingMillis": 1017}}, {"timing": {"sayingMillis": 336}}, Verdict.SAME),
    "a much longer one": ({"timing": {"sayingMillis": 1017}}, {"timing": {"sayingMillis": 60_000}}, Verdict.DIFFERENT),
    "another count of tasks": (
        {"conditions": [{"type": "Running", "reason": "Successful", "ansibleResult": {"ok": 3}}]},
        {"conditions": [{"type": "Running", "reason": "Successful", "ansibleResult": {"ok": 4}}]},
        Verdict.SAME,
    ),
    "another reason": (
        {"conditions": [{"type": "Running", "reason": "Successful", "ansibleResult": {"ok": 3}}]},
        {"conditions": [{"type": "Running", "reason": "Failed", "ansibleResult": {"ok": 3}}]},
        Verdict.DIFFERENT,
    ),
}


def ready(value: str, reason: str) -> dict[str, Any]:
    """Return a status with Ready, which has another time whenever it is called."""
    since = f"2027-01-15T08:00:{next(SECONDS):02}Z"
    what = {"type": "Ready", "status": value, "reason": reason, "observedGeneration": 1}
    return {"conditions": [{**what, "lastTransitionTime": since}], "pods": 2}


SECONDS = itertools.count()
STATUSES |= {
    "the same readiness": (ready("False", "NotReadyYet"), ready("False", "NotReadyYet"), Verdict.SAME),
    "another readiness": (ready("False", "NotReadyYet"), ready("True", "RunSucceeded"), Verdict.DIFFERENT),
    "a readiness that was not recorded": ({"pods": 2}, ready("False", "NotReadyYet"), Verdict.SAME),
    "a readiness that depends on the time": (
        ready("Unknown", "RunRequeued"),
        ready("True", "RunSucceeded"),
        Verdict.SAME,
    ),
}


@pytest.mark.parametrize("case", STATUSES)
def test_status_is_compared_without_durations_and_counts(case: str, tmp_path: Path) -> None:
    then, now, expected = STATUSES[case]
    record = stored(tmp_path, run_of(status=then))
    assert replay_of(record, run_of(status=now), RecordSource(record)).verdict is expected


def test_unrecorded_reads_are_reported_with_their_task(tmp_path: Path) -> None:
    known = ask("GET", f"{MAPS}/known", None, GONE, 404)
    unknown = ask("GET", f"{MAPS}/unknown", None, GONE, 404)
    pods = ask("GET", f"{PODS}?labelSelector=a%3Db", None, listed(kind="Pod"))
    found = replayed(tmp_path, ([known, WRITE], []), ([known, unknown, pods, WRITE], []))
    assert [(each.task.name, each.text) for each in found.unrecorded] == [
        ("one", "configmaps unknown in namespace ns"),
        ("one", "the list of pods in namespace ns with a=b"),
    ]
    assert found.verdict is Verdict.SAME


def test_exit_code_is_that_of_the_first_bad_record_or_the_worst(tmp_path: Path) -> None:
    def code(*verdicts: Verdict) -> int:
        return Replays(tuple(Replay(tmp_path, "Demo", "ns/one", each) for each in verdicts)).exit_code

    assert code() == code(Verdict.SAME) == ExitCode.SAME
    assert code(Verdict.SAME, Verdict.DIFFERENT) == ExitCode.DIFFERENT
    assert code(Verdict.INCOMPLETE, Verdict.DIFFERENT) == ExitCode.INCOMPLETE
    assert code(Verdict.FAILED, Verdict.INCOMPLETE) == ExitCode.FAILED
    assert Replays((BadRecord(tmp_path, "cut", 4), BadRecord(tmp_path, "empty", 6))).exit_code == 4
