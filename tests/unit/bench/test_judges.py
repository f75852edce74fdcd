"""The classification of judges' outcomes, their table, and the exit code."""

import json
from pathlib import Path

import pytest
from bench.contenders import PEER
from bench.field import Runs
from bench.field_objects import Objects
from bench.judges.__main__ import main
from bench.judges.field import judged as judged_projects
from bench.judges.judges import JUDGES, CheckoutError
from bench.judges.kubectl_commands import normalized
from bench.judges.runs import failed_task, last_failure
from bench.judges.verdicts import (
    COLD,
    DIRECT,
    MAX_MESSAGE,
    WARM,
    DocumentedDifference,
    Judged,
    Outcome,
    State,
    Verdict,
    report,
)
from hypothesis import given
from hypothesis import strategies as st

PASSED = Outcome(State.PASSED)
SKIPPED = Outcome(State.SKIPPED, message="needs v5")
NOT_RUN = Outcome(State.NOT_RUN, message="no port is free")
DIFFERENCE = DocumentedDifference("Reject the certificate", "the proxy has none")


def failed(task: str = "Do it") -> Outcome:
    return Outcome(State.FAILED, task=task, message="it failed")


def judged(**outcomes: Outcome) -> Judged:
    return Judged("judge", {"case": outcomes}, {})


def documented(**outcomes: Outcome) -> Judged:
    return Judged("judge", {"case": outcomes}, {"case": DIFFERENCE})


@pytest.mark.parametrize(
    ("outcomes", "verdict", "fails"),
    [
        (judged(direct=PASSED, cold=PASSED, warm=PASSED), Verdict.PASSES, False),
        (judged(direct=PASSED, cold=PASSED, warm=failed()), Verdict.DIFFERS, True),
        (judged(direct=PASSED, cold=failed(), warm=PASSED), Verdict.DIFFERS, True),
        (judged(direct=PASSED, cold=PASSED), Verdict.NOT_RUN, True),
        (judged(direct=PASSED), Verdict.NOT_RUN, True),
        (judged(direct=NOT_RUN), Verdict.NOT_RUN, True),
        (judged(direct=NOT_RUN, cold=PASSED, warm=PASSED), Verdict.NOT_RUN, True),
        (judged(direct=PASSED, cold=NOT_RUN, warm=PASSED), Verdict.NOT_RUN, True),
        (judged(direct=SKIPPED, cold=SKIPPED, warm=SKIPPED), Verdict.NOT_POSSIBLE, False),
        (judged(direct=PASSED, cold=SKIPPED, warm=PASSED), Verdict.DIFFERS, True),
        (judged(direct=PASSED, cold=SKIPPED, warm=failed()), Verdict.DIFFERS, True),
        (judged(direct=failed()), Verdict.NOT_POSSIBLE, False),
        (judged(direct=failed(), cold=failed(), warm=failed()), Verdict.NOT_POSSIBLE, False),
        (judged(cold=PASSED, warm=PASSED), Verdict.PASSES, False),
        (judged(cold=PASSED, warm=failed()), Verdict.DIFFERS, True),
        (
            documented(direct=PASSED, cold=failed(DIFFERENCE.task), warm=failed(DIFFERENCE.task)),
            Verdict.DOCUMENTED,
            False,
        ),
        (documented(direct=PASSED, cold=failed(DIFFERENCE.task), warm=PASSED), Verdict.DIFFERS, True),
        (documented(direct=PASSED, cold=failed(DIFFERENCE.task), warm=failed("Another")), Verdict.DIFFERS, True),
        (documented(direct=PASSED, cold=failed(DIFFERENCE.task)), Verdict.NOT_RUN, True),
        (documented(direct=PASSED, cold=SKIPPED, warm=SKIPPED), Verdict.DIFFERS, True),
        (documented(direct=PASSED, cold=PASSED, warm=PASSED), Verdict.OUTDATED, False),
        (documented(direct=failed()), Verdict.NOT_POSSIBLE, False),
    ],
)
def test_only_a_documented_failure_in_both_columns_excuses_a_case_that_passes_directly(
    outcomes: Judged, verdict: Verdict, *, fails: bool
) -> None:
    assert (outcomes.verdict("case"), outcomes.fails) == (verdict, fails)


def test_table_counts_each_column_and_lists_every_case_that_does_not_pass() -> None:
    outcomes = {
        "passes": {DIRECT: PASSED, COLD: PASSED, WARM: PASSED},
        "needs pods": {DIRECT: failed("Wait for the pod")},
        "certificate": {DIRECT: PASSED, COLD: failed(DIFFERENCE.task), WARM: failed(DIFFERENCE.task)},
        "differs": {DIRECT: PASSED, COLD: PASSED, WARM: failed()},
        "worse": {WARM: failed("Warm"), DIRECT: PASSED, COLD: failed("Cold")},
        "skipped": {DIRECT: PASSED, COLD: SKIPPED, WARM: SKIPPED},
        "missing": {DIRECT: PASSED, COLD: PASSED},
        "only warm": {WARM: PASSED},
    }
    missing = Judged("other", {}, error="the control plane didn't start")
    lines = report([Judged("judge", outcomes, {"certificate": DIFFERENCE}), missing]).splitlines()
    assert lines[2:] == [
        "| judge | 8 | 6 of 7 | 3 of 6, 1 skipped | 2 of 6, 1 skipped | 3, and 1 documented, and 2 not run |",
        "| other | 0 |  |  |  | not run |",
        "",
        "- judge, needs pods: not possible here; direct failed in `Wait for the pod`: `it failed`",
        "- judge, certificate: documented difference (the proxy has none)",
        "- judge, differs: differs; warm failed in `Do it`: `it failed`",
        "- judge, worse: differs; cold failed in `Cold`: `it failed`; warm failed in `Warm`: `it failed`",
        "- judge, skipped: differs; cold skipped: `needs v5`; warm skipped: `needs v5`",
        "- judge, missing: not run; warm not run: `no outcome`",
        "- judge, only warm: not run; direct not run: `no outcome`; cold not run: `no outcome`",
        "- other: `the control plane didn't start`",
    ]


@given(st.text(min_size=1))
def test_message_of_another_program_is_one_short_line_in_a_code_span(text: str) -> None:
    found = Judged("judge", {"case": {DIRECT: Outcome(State.FAILED, task=text, message=text * 40)}})
    for report_of in (report([found]), report([Judged("judge", {}, error=text * 40)])):
        line = report_of.split("\n\n", 1)[1].removesuffix("\n")
        assert line.isprintable()
        assert len(line) < 2 * MAX_MESSAGE + 100
        assert line.count("`") % 2 == 0
        assert line.replace("`", "", 1).startswith("- judge")


def test_public_operators_pass_if_outcome_and_objects_equal_those_of_the_peer() -> None:
    def runs(project: str, ours: str, peer: str, *, is_different: bool = False) -> Runs:
        ours_written: Objects = {"ConfigMap one": {"data.a": is_different}}
        peers_written: Objects = {"ConfigMap one": {"data.a": False}}
        return Runs(project, {WARM: ours, PEER: peer}, {WARM: ours_written, PEER: peers_written})

    good, bad = "Successful", "Failed: no"
    found = judged_projects(
        [
            runs("equal", good, good),
            runs("differs", good, good, is_different=True),
            runs("worse", bad, good),
            runs("neither", bad, bad),
            runs("peer missing", good, "not run: invalid flags usage"),
            runs("rolecall missing", "not run: no port is free", good),
            runs("both missing", "not run: no port is free", "not run: no port is free"),
        ]
    )
    assert {case: found.verdict(case) for case in found.outcomes} == {
        "equal": Verdict.PASSES,
        "differs": Verdict.DIFFERS,
        "worse": Verdict.DIFFERS,
        "neither": Verdict.NOT_POSSIBLE,
        "peer missing": Verdict.NOT_RUN,
        "rolecall missing": Verdict.NOT_RUN,
        "both missing": Verdict.NOT_RUN,
    }
    assert found.fails


def test_judge_that_cannot_run_or_has_no_case_fails() -> None:
    assert Judged("judge", {}, error="no cluster").fails
    assert Judged("judge", {}).fails


def test_missing_or_different_checkout_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing")]) == 2
    assert "missing isn't a directory" in capsys.readouterr().err
    assert main([str(tmp_path), "--judge", "kubernetes.core"]) == 2
    assert "kubernetes.core: no such directory" in capsys.readouterr().err
    (tmp_path / "kubernetes.core").mkdir()
    with pytest.raises(CheckoutError, match="it has no tests/integration/targets"):
        JUDGES[0].checkout(tmp_path)


IGNORED = "TASK [ignored] ***\n[ERROR]: Task failed\nfatal: [localhost]: FAILED! => one\n...ignoring\n\n"
ITEMS = "TASK [ignored items] ***\nfailed: [localhost] (item=1) => one\nok: [localhost] => (item=2)\n...ignoring\n"
FINE = "TASK [fine] ****\nok: [localhost]\n\n"
RECAP = "PLAY RECAP ****\nlocalhost : ok=1 failed=1 ignored=1\n"


@pytest.mark.parametrize("heading", ["TASK [failing]", "RUNNING HANDLER [failing]", "CLEANUP TASK [failing]"])
@pytest.mark.parametrize("error", ["fatal: [localhost]: FAILED! => 3", "failed: [localhost] (item=2) => 3"])
@given(
    st.lists(st.sampled_from([IGNORED, ITEMS, FINE])),
    st.lists(st.sampled_from([IGNORED, ITEMS, FINE])),
    st.sampled_from(["", RECAP]),
)
def test_last_failure_is_that_of_the_last_task_whose_error_is_not_ignored(
    heading: str, error: str, before: list[str], after: list[str], end: str
) -> None:
    output = "".join([*before, f"{heading} ***\n[ERROR]: Task failed: no\n{error}\n", *after, end])
    task, message = last_failure(output)
    assert (task, message.splitlines()[0]) == ("failing", error)


def test_last_failure_without_a_failing_task_is_the_error_or_the_end_of_the_output() -> None:
    assert last_failure("ERROR! the playbook can't be read") == ("", "ERROR! the playbook can't be read")
    assert last_failure("[ERROR]: the playbook can't be read\n") == ("", "[ERROR]: the playbook can't be read\n")
    assert last_failure(f"{FINE}{IGNORED}") == ("", f"{FINE}{IGNORED}")
    unknown_role = f"{FINE}{IGNORED}[ERROR]: the role 'x' was not found\n"
    assert last_failure(unknown_role)[1] == "[ERROR]: the role 'x' was not found\n"


def test_failed_task_is_the_one_that_the_condition_reports() -> None:
    failures = [("Check", "1 is not 2", "error"), ("Clean up", "no such namespace", "error"), ("Try", "1 is", "info")]
    lines = [
        json.dumps({"event_type": "runner_on_failed", "task": task, "reason": why, "level": level})
        for task, why, level in failures
    ]
    assert failed_task(lines, "1 is not 2") == "Check"
    assert failed_task(lines, "something else") == "Clean up"
    assert failed_task(lines[2:], "1 is not 2") == ""
    assert failed_task([], "the operator exited with 1") == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("web-7c5ddbdf54-x2bqv   1/1   Running   0   12s", "web-6d4cf56db6-9zk7c   1/1   Running   0   1m4s"),
        ("creationTimestamp: 2026-01-01T00:00:00Z", "creationTimestamp: 2026-02-02T11:22:33Z"),
        ('resourceVersion: "12"', 'resourceVersion: "3456"'),
        ("running at https://127.0.0.1:20001", "running at http://localhost:4321/"),
    ],
)
def test_outputs_of_equal_clusters_are_equal(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


def test_outputs_with_different_results_stay_different() -> None:
    assert normalized('deployment.apps "web" deleted') != normalized('deployment.apps "web" deleted (server dry run)')
    assert normalized("error: 404") != normalized("error: 409")
