"""What is said about a record: the same, other writes, complete up to a task, or failed, and what was left open."""

from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.runner.proxy import Exchange
from rolecall.runner.runs.events import TaskFailure
from rolecall.workbench.plan.model import ExitCode
from rolecall.workbench.replay.comparison import ReplayedRun, outcome_of
from rolecall.workbench.replay.output import document_of, lines_of, total
from rolecall.workbench.replay.recorded_cluster import RecordSource
from rolecall.workbench.replay.results import BadRecord, Replay, Replays, Verdict
from tests.unit.workbench.replay.stories import GONE, MAPS, PODS, ask, config_map, listed, run_of, stored

WRITE = ask("POST", MAPS, config_map("1"), config_map("1"), 201)
OTHER = ask("POST", MAPS, config_map("2"), config_map("2"), 201)
LAST = ask("DELETE", f"{MAPS}/b", None, GONE, 404)
REFUSED = TaskFailure("one", "localhost", "no room at 2027-01-15T08:00:00Z in /tmp/ansible-tmp-1/x")
REFUSED_LATER = replace(REFUSED, message="no room at 2027-01-15T08:00:02Z in /tmp/ansible-tmp-2/x")
BROKEN = TaskFailure("two", "localhost", "something else")


Story = tuple[list[Exchange], list[TaskFailure]]
"""The requests of a run, and why it failed."""


def replayed(tmp_path: Path, then: Story, now: Story, stopped_at: str = "") -> Replay:
    record = stored(tmp_path, run_of(*then[0], failures=tuple(then[1])))
    today = run_of(*now[0], failures=tuple(now[1]))
    return outcome_of(record, ReplayedRun(today, RecordSource(record), stopped_at=stopped_at))


CASES: dict[str, tuple[Story, Story, Verdict]] = {
    "the same": (([WRITE], []), ([WRITE], []), Verdict.SAME),
    "the same failure": (([WRITE], [REFUSED]), ([WRITE], [REFUSED_LATER]), Verdict.SAME),
    "other writes": (([WRITE], []), ([OTHER], []), Verdict.DIFFERENT),
    "mended": (([WRITE], [REFUSED]), ([WRITE, LAST], []), Verdict.DIFFERENT),
    "a failure that was none": (([WRITE, LAST], []), ([WRITE], [REFUSED]), Verdict.FAILED),
    "another failure": (([WRITE], [REFUSED]), ([WRITE], [BROKEN]), Verdict.FAILED),
    "the same failure after other writes": (([WRITE], [REFUSED]), ([OTHER], [REFUSED]), Verdict.FAILED),
}


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_says_what_is_different(case: str, tmp_path: Path) -> None:
    then, now, expected = CASES[case]
    assert replayed(tmp_path, then, now).verdict is expected


def test_a_replay_that_ends_at_a_task_does_not_miss_what_comes_later(tmp_path: Path) -> None:
    found = replayed(tmp_path, ([WRITE, LAST], []), ([WRITE], [BROKEN]), "3: ask: uses a command")
    assert (found.verdict, found.differences, found.not_reached) == (Verdict.INCOMPLETE, (), 1)
    assert found.failure == "", "it is how a replay ends there"


def test_a_status_that_would_be_written_is_compared(tmp_path: Path) -> None:
    record = stored(tmp_path, run_of(WRITE, status={"ready": 1, "at": "2020-01-01"}))
    source = RecordSource(record)
    same = outcome_of(record, ReplayedRun(run_of(WRITE, status={"ready": 1, "at": "2020-01-01"}), source))
    other = outcome_of(record, ReplayedRun(run_of(WRITE, status={"ready": 2, "at": "2020-01-01"}), source))
    assert same.verdict is Verdict.SAME
    assert other.verdict is Verdict.DIFFERENT
    text = [line.text.strip() for line in lines_of(Replays((other,)), is_summary=False)]
    assert {"-  ready: 1", "+  ready: 2"} <= set(text)


def test_how_long_something_took_is_no_difference_of_a_status(tmp_path: Path) -> None:
    def verdict(then: int, now: int) -> Verdict:
        record = stored(tmp_path, run_of(status={"timing": {"sayingMillis": then}}))
        today = run_of(status={"timing": {"sayingMillis": now}})
        return outcome_of(record, ReplayedRun(today, RecordSource(record))).verdict

    assert verdict(1017, 336) is Verdict.SAME
    assert verdict(1017, 60_000) is Verdict.DIFFERENT


def test_counts_of_tasks_are_no_difference_of_a_status(tmp_path: Path) -> None:
    def status(count: int, reason: str) -> dict[str, object]:
        return {"conditions": [{"type": "Running", "reason": reason, "ansibleResult": {"ok": count}}]}

    record = stored(tmp_path, run_of(status=status(3, "Successful")))
    source = RecordSource(record)
    assert outcome_of(record, ReplayedRun(run_of(status=status(4, "Successful")), source)).verdict is Verdict.SAME
    assert outcome_of(record, ReplayedRun(run_of(status=status(3, "Failed")), source)).verdict is Verdict.DIFFERENT


def test_secret_values_of_the_run_are_not_shown(tmp_path: Path) -> None:
    record = stored(tmp_path, run_of(WRITE))
    today = run_of(ask("POST", MAPS, config_map("a-planted-password"), config_map(""), 201))
    found = outcome_of(record, ReplayedRun(today, RecordSource(record), secrets=("a-planted-password",)))
    text = "\n".join(line.text for line in lines_of(Replays((found,)), is_summary=False))
    assert "planted" not in text
    assert "(sensitive)" in text


def test_questions_that_the_record_does_not_answer_are_told_with_their_task(tmp_path: Path) -> None:
    today = [
        ask("GET", f"{MAPS}/known", None, GONE, 404),
        ask("GET", f"{MAPS}/unknown", None, GONE, 404),
        ask("GET", f"{PODS}?labelSelector=a%3Db", None, listed(kind="Pod")),
        WRITE,
    ]
    found = replayed(tmp_path, ([ask("GET", f"{MAPS}/known", None, GONE, 404), WRITE], []), (today, []))
    assert [(each.task.name, each.text) for each in found.questions] == [
        ("one", "configmaps unknown in namespace ns"),
        ("one", "the list of pods in namespace ns with a=b"),
    ]
    assert found.verdict is Verdict.SAME


def test_the_output_has_a_line_for_each_record_and_the_differences_by_task(tmp_path: Path) -> None:
    other = replayed(tmp_path, ([WRITE], []), ([OTHER], []))
    bad = BadRecord(tmp_path / "bad.jsonl", "bad.jsonl: is cut", 4)
    replays = Replays((other, bad))
    text = [line.text for line in lines_of(replays, is_summary=False)]
    assert text[0].startswith("Demo ns/one: other writes  (")
    assert "  TASK one" in text
    assert f"    changed: POST {MAPS}" in text
    assert {"-    a: '1'", "+    a: '2'"} <= {line.strip() for line in text}
    assert text[-1] == "2 records: 1 other writes, 1 not replayed"
    assert len(list(lines_of(replays, is_summary=True))) == 2
    first, second = document_of(replays)["records"]
    assert (first["result"], first["differences"][0]["task"]) == ("other writes", "one")
    assert (second["result"], second["exitCode"]) == ("not replayed", 4)


def test_the_exit_code_is_that_of_the_first_bad_record_else_the_worst(tmp_path: Path) -> None:
    def code(*verdicts: Verdict) -> int:
        return Replays(tuple(Replay(tmp_path, "Demo", "ns/one", each) for each in verdicts)).exit_code

    assert code() == code(Verdict.SAME) == ExitCode.SAME
    assert code(Verdict.SAME, Verdict.DIFFERENT) == ExitCode.DIFFERENT
    assert code(Verdict.INCOMPLETE, Verdict.DIFFERENT) == ExitCode.INCOMPLETE
    assert code(Verdict.FAILED, Verdict.INCOMPLETE) == ExitCode.FAILED
    assert Replays((BadRecord(tmp_path, "cut", 4), BadRecord(tmp_path, "empty", 6))).exit_code == 4
    assert total(Replays(())) == "0 records: nothing to replay"
