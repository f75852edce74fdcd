"""The table of moments in docs/concepts/status.md: kstatus says at each of them what the documentation says."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rolecall.kube.references import RawObject
from rolecall.runner.reconcile.status import (
    ConditionContext,
    Readiness,
    Status,
    interrupted,
)
from rolecall.runner.runs.outcome import Outcome, Reported
from tests.integration.operators import PROJECT
from tests.kstatus.judge import Judge
from tests.support.readiness_cases import CASES

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
ON = Readiness(is_on=True)
SUCCESS, FAILURE = Outcome("successful"), Outcome.of_failure("Task 'Boom': no")
REQUEUE = replace(SUCCESS, requeue_after_seconds=1.0)
UNREADY, READY = (replace(SUCCESS, reported=Reported(unready=reason)) for reason in ("not yet", ""))
FINAL = Outcome.of_failure("Unable to parse reconcile period annotation", is_final=True)


@dataclass(frozen=True, slots=True)
class Moment:
    """An object at a moment: its status, its generation, and when it is."""

    status: Status = field(default_factory=lambda: {"observedGeneration": -1})
    generation: int = 1
    seconds: int = 0
    is_deleted: bool = False

    @property
    def stamp(self) -> ConditionContext:
        """The time, and the generation."""
        return ConditionContext(START + timedelta(seconds=self.seconds), self.generation)

    def running(self) -> "Moment":
        """Return the object during a run."""
        return replace(self, status=ON.while_running(self.status, self.stamp))

    def paused(self) -> "Moment":
        """Return the object once it is paused."""
        return replace(self, status=ON.while_paused(self.status, self.stamp))

    def ended(self, outcome: Outcome) -> "Moment":
        """Return the object after a run."""
        return replace(self, status=ON.after_run(self.status, outcome, self.stamp))

    def interrupted(self) -> "Moment":
        """Return the object after a run that the operator interrupted."""
        return replace(self.running(), status=interrupted(self.running().status, self.status, "stop", self.stamp))

    def edited(self) -> "Moment":
        """Return the object after a change of its spec."""
        return replace(self, generation=self.generation + 1)

    def later(self, seconds: int) -> "Moment":
        """Return the object some time later."""
        return replace(self, seconds=self.seconds + seconds)

    def object(self) -> RawObject:
        """Return the response of the API server."""
        deletion = {"deletionTimestamp": "2026-01-01T12:00:00Z"} if self.is_deleted else {}
        metadata = {"name": "one", "generation": self.generation, **deletion}
        return {"apiVersion": "test.rolecall.dev/v1", "kind": "Thing", "metadata": metadata, "status": self.status}


NEW = Moment()
DONE, RETRIED, STALLED = NEW.ended(SUCCESS), NEW.ended(FAILURE), NEW.ended(FINAL)
RESULTS = (DONE, RETRIED, STALLED, NEW.ended(REQUEUE), NEW.ended(UNREADY))
MOMENTS: dict[str, list[tuple[str, Moment]]] = {
    "no run yet; the CRD has the": [("InProgress", NEW)],
    "first run, or first run after": [
        ("InProgress", NEW.running()),
        ("InProgress", Moment(status={}).running()),
        *(("InProgress", result.edited().running()) for result in RESULTS),
    ],
    "the spec has changed, its run": [("InProgress", result.edited()) for result in RESULTS],
    "success": [
        ("Current", DONE),
        ("Current", DONE.edited().running().ended(SUCCESS)),
        ("Current", NEW.ended(UNREADY).ended(READY)),
        ("Current", NEW.ended(UNREADY).ended(replace(READY, requeue_after_seconds=1.0))),
    ],
    "success, and the role has requested": [("InProgress", NEW.ended(REQUEUE))],
    "success, but the value of `ready`": [
        ("InProgress", NEW.ended(UNREADY)),
        ("InProgress", NEW.ended(UNREADY).later(1).running()),
    ],
    "failure with a pending retry": [
        ("InProgress", RETRIED),
        ("InProgress", DONE.later(99).ended(FAILURE)),
        ("InProgress", NEW.ended(UNREADY).later(99).ended(FAILURE)),
    ],
    "failure, and retries haven't": [("Failed", RETRIED.later(30).running().ended(FAILURE))],
    "failure that requires another": [("Failed", STALLED)],
    "any later run of the same": [("Current", DONE.running()), ("Failed", STALLED.running())],
    "interrupted, for example because": [
        ("Current", DONE.later(99).interrupted()),
        ("InProgress", RETRIED.later(99).interrupted()),
        ("Failed", STALLED.later(99).interrupted()),
        ("InProgress", NEW.interrupted()),
        ("InProgress", DONE.edited().interrupted()),
    ],
    "paused after a run": [("Current", DONE.paused()), ("Failed", STALLED.paused())],
    "paused before the first run": [("InProgress", NEW.paused()), ("InProgress", Moment(status={}).paused())],
    "being deleted": [("Terminating", replace(result, is_deleted=True)) for result in RESULTS],
}
"""Each row of the table by the beginning of its first cell, with what kstatus is expected to say."""


PAGE = PROJECT / "docs/concepts/status.md"


def _rows() -> list[list[str]]:
    """Return the cells of the table."""
    table = PAGE.read_text().split("| moment |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_kstatus_matches_the_documentation_at_each_moment(judge: Judge) -> None:
    """Every row of the table is tried, and nothing that is not in the table."""
    rows = _rows()
    assert len(rows) == len(MOMENTS)
    for (start, cases), row in zip(MOMENTS.items(), rows, strict=True):
        assert row[0].startswith(start)
        expected = [word for word, _ in cases]
        assert judge.words(moment.object() for _, moment in cases) == expected, row[0]
        if row[-1] != "as before":
            assert set(row[-1].split(", or ")) == set(expected), row[0]


def test_health_check_for_argo_cd_agrees_with_kstatus(judge: Judge, tmp_path: Path) -> None:
    """The script on the page is run as it stands there; Argo CD itself looks whether an object is being deleted."""
    check = tmp_path / "health.lua"
    check.write_text(PAGE.read_text().split("```lua\n")[1].split("```")[0])
    healths = {"InProgress": "Progressing", "Current": "Healthy", "Failed": "Degraded"}
    cases = [case for moment in MOMENTS.values() for case in moment if case[0] in healths]
    objects = [moment.object() for _, moment in cases]
    assert [each.word for each in judge.judge(objects, check)] == [healths[word] for word, _ in cases]
    assert {each.word for each in judge.judge([{**obj, "status": None} for obj in objects], check)} == {"Progressing"}


def test_readiness_of_all_kinds_is_that_of_kstatus(judge: Judge) -> None:
    """The dashboard shows it. A failed Pod, which kstatus considers current, is the only exception."""
    words = {"ready": "Current", "not ready": "InProgress", "failed": "Failed", "deleting": "Terminating"}
    found = zip(CASES, judge.words([case.obj for case in CASES]), strict=True)
    others = [(case.kind, case.reason, word) for case, word in found if word != words[case.readiness]]
    assert others == [("Pod", "Evicted", "Current")]
