"""Rows, summary, document, and exit code of an exploration, and its examples."""

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.workbench.comparison.reports import ExitCode, TaskName
from rolecall.workbench.explore.results import (
    Example,
    Exploration,
    Finding,
    Row,
    Verdict,
    document_of,
    rows_of,
    summary_of,
    write_example,
)
from rolecall.workbench.explore.rules import Rule, Symptom
from rolecall.workbench.plan.model import PlanError

TASK = TaskName("shop : Write tls", "roles/shop/tasks/tls.yml:4")
SYMPTOM = Symptom(Rule.FRESH, TASK, "Secret", "Secret default/shop-tls remains", "prune it, or state: absent")


def finding(number: int = 1, symptom: Symptom = SYMPTOM) -> Finding:
    """Return a finding."""
    return Finding(number, symptom, "tls: true -> false", ({"tls": True}, {"tls": False}))


def exploration(*verdicts: Verdict, **given: Any) -> Exploration:
    """Return an exploration with rows of these verdicts."""
    rows = [Row(number, "size: 1 -> 2", ("size",), each) for number, each in enumerate(verdicts, 1)]
    return Exploration("Shop default/shop", 4711, rows, seconds=61.0, **given)


def text_of(row: Row) -> list[str]:
    """Return the lines of a row without their indentation."""
    return [line.text.strip() for line in rows_of(row)]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (exploration(), ExitCode.SAME),
        (exploration(Verdict.SAME, Verdict.REJECTED), ExitCode.SAME),
        (exploration(Verdict.SAME, Verdict.NOT_TRIED), ExitCode.INCOMPLETE),
        (exploration(stopped_at="Ask: withheld"), ExitCode.INCOMPLETE),
        (exploration(Verdict.NOT_TRIED, Verdict.DIFFERS, findings=[finding()]), ExitCode.DIFFERENT),
    ],
)
def test_finding_takes_precedence_in_the_exit_code(found: Exploration, code: ExitCode) -> None:
    assert found.exit_code is code


def test_row_of_a_finding_names_task_and_remedy() -> None:
    row = Row(2, "tls: true -> false", ("tls",), Verdict.DIFFERS, new=(finding(),))
    assert text_of(row) == [
        (
            "2  tls: true -> false                   DIFFERS: Secret default/shop-tls remains "
            "(made by roles/shop/tasks/tls.yml:4)"
        ),
        "remedy: prune it, or state: absent",
    ]


def test_row_of_a_failure_names_its_task_once() -> None:
    symptom = Symptom(Rule.VALID, TASK, "size", "fails at roles/shop/tasks/tls.yml:4: division by zero", "minimum: 1")
    [first, _] = text_of(Row(3, "size: 3 -> 0", ("size",), Verdict.FAILS, new=(finding(symptom=symptom),)))
    assert first.endswith("FAILS at roles/shop/tasks/tls.yml:4: division by zero")


def test_row_of_a_known_finding_refers_to_it() -> None:
    [line] = text_of(Row(9, "tls: true -> false", ("tls",), Verdict.DIFFERS, again=(1,)))
    assert line.endswith("DIFFERS as in finding 1")


def test_summary_has_counts_seed_and_the_directory_of_examples() -> None:
    found = exploration(Verdict.SAME, Verdict.SAME, Verdict.DIFFERS, findings=[finding()])
    *_, last = (line.text for line in summary_of(found, Path("explore")))
    assert last == (
        "Shop default/shop: 3 edits of 1 field in 1m1s: 2 same, 1 differs. Seed 4711. Shortest examples in explore/"
    )


def test_document_has_every_row_and_finding() -> None:
    document = document_of(exploration(Verdict.SAME, Verdict.DIFFERS, findings=[finding()]))
    assert json.loads(json.dumps(document)) == document
    assert (document["result"], len(document["edits"]), document["seed"]) == ("different", 2, 4711)
    [found] = document["findings"]
    assert (found["rule"], found["task"]["place"]) == ("fresh", "roles/shop/tasks/tls.yml:4")


def test_example_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = finding()
    found.process = 3
    write_example(found, {"tls": False}, tmp_path / "explore", 7)
    assert found.example == tmp_path / "explore" / "1-fresh.json"
    assert Example.read(found.example) == Example({"tls": False}, found.walk, deletes=False, seed=7, process=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "expected an example written by rolecall explore"),
        ('{"format": 1}', "expected an example written by rolecall explore"),
        ('{"format": 9, "from": {}, "specs": [], "deletes": false}', "expected format 1, found 9"),
        ('{"format": 1, "from": {}, "specs": [3], "deletes": false, "seed": 1, "process": 0}', "expected an example"),
    ],
)
def test_bad_example_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "example.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match=message):
        Example.read(path)
