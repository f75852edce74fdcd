"""Trials as text, and the exit code and document of a crash test."""

from pathlib import Path

import pytest

from rolecall.workbench.comparison.end_states import Difference
from rolecall.workbench.comparison.reports import ExitCode, TaskName
from rolecall.workbench.crashtest.results import CrashTest, Trial, Verdict, document_of, rows_of, summary_of
from rolecall.workbench.crashtest.write_log import Write

WRITE = Write("PUT", "/api/v1/namespaces/ns/configmaps/a", task=TaskName("foo : Write", "/r/main.yml:3"))


def crash_test(*verdicts: Verdict, stopped_at: str = "") -> CrashTest:
    """Return a crash test with trials of these verdicts."""
    trials = tuple(Trial(number, WRITE, verdict) for number, verdict in enumerate(verdicts, 1))
    return CrashTest("Foo ns/one", (WRITE,) * 4, trials, stopped_at, (TaskName("Ask"),), ("A note",), 61.4)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], ExitCode.SAME),
        ([Verdict.SAME], ExitCode.SAME),
        ([Verdict.STUCK], ExitCode.DIFFERENT),
        ([Verdict.ENDLESS], ExitCode.DIFFERENT),
    ],
)
def test_difference_takes_precedence_in_the_exit_code(verdicts: list[Verdict], code: ExitCode) -> None:
    assert crash_test(*verdicts).exit_code is code


def test_incomplete_role_makes_a_crash_test_incomplete() -> None:
    assert crash_test(Verdict.SAME, stopped_at="Ask: withheld").exit_code is ExitCode.INCOMPLETE
    assert crash_test(Verdict.DIFFERS, stopped_at="Ask: withheld").exit_code is ExitCode.DIFFERENT


def test_rows_show_each_difference() -> None:
    differences = (
        Difference("ConfigMap ns/a", "data.x", "before", "after"),
        Difference("ConfigMap ns/b", found="missing"),
        Difference("ConfigMap ns/c", found="additional"),
    )
    trial = Trial(7, WRITE, Verdict.DIFFERS, differences, records=Path("records/write-7"))
    assert [line.text.strip() for line in rows_of(trial)] == [
        "7  differs    foo : Write (/r/main.yml:3)",
        "PUT /api/v1/namespaces/ns/configmaps/a",
        "~ ConfigMap ns/a: data.x",
        "-before",
        "+after",
        "- ConfigMap ns/b is missing",
        "+ ConfigMap ns/c is additional",
        "records: records/write-7",
    ]


def test_summary_counts_verdicts() -> None:
    found = crash_test(Verdict.SAME, Verdict.STUCK, Verdict.SAME, stopped_at="Ask: withheld")
    assert [line.text for line in summary_of(found)] == [
        "A note",
        "1 task did not run: Ask",
        "tested up to task Ask: withheld",
        "Foo ns/one: killed after 3 of 4 writes in 1m1s: 2 same, 1 stuck",
    ]


def test_document_has_all_trials() -> None:
    document = document_of(crash_test(Verdict.SAME, Verdict.DIFFERS))
    assert document["result"] == "different"
    assert document["writes"] == 4
    assert [(each["write"], each["verdict"]) for each in document["trials"]] == [(1, "same"), (2, "differs")]
