"""Prune in the simulation: no wrong deletion, and every plain case pruned; ``make simulation-prune`` plays more."""

from pathlib import Path
from unittest import mock

import pytest

from rolecall.runner.prune import decision, inventory
from tests.simulation.__main__ import main
from tests.simulation.history import Options, play
from tests.simulation.pruning.history import FAULTS, PruningHistory
from tests.simulation.pruning.kept import KEPT, play_kept
from tests.simulation.pruning.mutants import PRUNE_MUTANTS
from tests.simulation.pruning.plain import CASES, play_case

SEEDS = range(1, 9)


@pytest.mark.parametrize("name", CASES)
def test_plain_case_is_pruned(tmp_path: Path, name: str) -> None:
    """What an option made goes in the time of the task and three runs, and nothing else does."""
    report = play_case(name, tmp_path / "case")
    assert report.findings == []
    assert report.faults["deletions"] >= 1


@pytest.mark.parametrize("name", KEPT)
def test_object_stays(tmp_path: Path, name: str) -> None:
    assert play_kept(name, tmp_path / "case").findings == []


def test_histories_have_no_wrong_deletion(tmp_path: Path) -> None:
    reports = [play(seed, tmp_path / str(seed), Options(FAULTS), PruningHistory) for seed in SEEDS]
    assert {report.seed: report.findings for report in reports if report.findings} == {}
    assert sum(report.faults["deletions"] for report in reports) > 0


def test_inventory_that_would_be_too_long_is_never_written(tmp_path: Path) -> None:
    with mock.patch.object(inventory, "MAX_BYTES", 700), mock.patch.object(decision, "MAX_BYTES", 700):
        assert play(1, tmp_path / "history", Options(FAULTS), PruningHistory).findings == []


def test_seed_tells_the_same_story_again(tmp_path: Path) -> None:
    reports = [play(3, tmp_path / name, Options(FAULTS), PruningHistory) for name in ("a", "b")]
    assert reports[0].digest == reports[1].digest


@pytest.mark.parametrize("name", ["prune-needs-no-stability", "prune-waits-for-what-never-ends"])
def test_rule_that_is_switched_off_is_found(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["--prune", "--mutants", "--only", name, "--jobs", "1"]) == 0
    assert "seed " in capsys.readouterr().out


def test_each_rule_has_a_mutant() -> None:
    rows = {f"P{number}" for number in range(1, 15)}
    assert {str(mutant.guarantee) for mutant in PRUNE_MUTANTS.values()} >= rows | {"principle", "who"}


def test_unknown_mutant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--prune", "--mutants", "--only", "runs-overlap"])
    assert "invalid choice: 'runs-overlap'" in capsys.readouterr().err
