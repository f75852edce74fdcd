from pathlib import Path

from rolecall.config.content import RoleContent
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runs.events import RunSummary, TaskFailure
from rolecall.runs.instant import InstantRunner
from rolecall.runs.runner import Runner, RunSpec, new_ident
from rolecall.runs.workspace import Workspace

JOB = RunSpec("1", Workspace(Path("/w"), GVK("a", "v1", "A"), ObjectKey("n", "x")), RoleContent(Path("/r/a")))


def test_idents_are_decimal_numbers_of_63_bits() -> None:
    idents = {new_ident() for _ in range(100)}
    assert len(idents) == 100
    assert all(0 <= int(ident) < 2**63 for ident in idents)


def test_secrets_are_not_in_what_is_printed_of_a_job() -> None:
    job = RunSpec("1", JOB.workspace, JOB.content, secret_environment={"TOKEN": "s3cret"})
    assert "s3cret" not in repr(job)


async def test_an_instant_play_succeeds() -> None:
    runner: Runner = InstantRunner()
    summary = await runner.run(JOB, lambda _event: None)
    assert summary.is_successful
    assert summary.counts.ok == 1


async def test_the_outcome_of_an_instant_play_can_be_chosen() -> None:
    chosen = RunSummary("failed", failures=(TaskFailure("A", "", "x"),))
    assert await InstantRunner(lambda _job: chosen).run(JOB, lambda _event: None) is chosen
