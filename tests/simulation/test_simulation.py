"""The simulation's own promises; its histories are played by ``make simulation``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import mutants
from tests.simulation.__main__ import main
from tests.simulation.history import Options, play

SEEDS = ("--seeds", "1-12", "--jobs", "1")


def simulate(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


def test_seed_tells_the_same_story_in_each_process() -> None:
    """Neither hashes of strings nor addresses of objects decide what an operator does."""
    stories = [simulate(*SEEDS, PYTHONHASHSEED=seed).stdout.rpartition("stories ")[2] for seed in ("1", "2", "3")]
    assert len(set(stories)) == 1
    assert len(stories[0].strip()) == 12


def test_stories_differ_between_seeds_and_with_other_faults(tmp_path: Path) -> None:
    """A digest that never differs would prove nothing."""
    reports = [play(1, tmp_path / "a"), play(2, tmp_path / "b"), play(1, tmp_path / "c", Options(fault_rate=0.0))]
    assert len({report.digest for report in reports}) == 3


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_histories_have_no_findings(capsys: pytest.CaptureFixture[str], replicas: int) -> None:
    assert main([*SEEDS, "--replicas", str(replicas)]) == 0
    assert capsys.readouterr().out.startswith("12 histories, ")


def test_planted_fault_is_found_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mutants", "--only", "every-write-counts-as-own", "--jobs", "1"]) == 0
    assert "seed " in capsys.readouterr().out


def test_fault_that_nothing_finds_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(mutants, "LIMIT_SECONDS", 0.0)
    assert main(["--mutants", "--only", "runs-overlap", "--jobs", "1"]) == 1
    assert "NOT FOUND" in capsys.readouterr().out


def test_finding_names_its_seed_and_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.simulation.ending.wrong_status", lambda *_, **__: ["planted"])
    assert main(["--seeds", "5", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "seed 5: after the faults" in said
    assert "python -m tests.simulation --story 5" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "5-1"], "expected a range such as 1-500, found '5-1'"),
        (["--seeds", "one"], "expected a seed or a range such as 1-500, found 'one'"),
        (["--jobs", "0"], "expected a number of at least 1, found '0'"),
        (["--faults", "2"], "expected a number from 0 to 1, found '2'"),
        (["--mutants", "--only", "none"], "invalid choice: 'none'"),
    ],
)
def test_invalid_arguments_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err
