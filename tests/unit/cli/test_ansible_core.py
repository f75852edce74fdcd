import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from rolecall.cli import ansible_operator
from rolecall.cli.ansible_environment import MINIMUM
from rolecall.cli.main import main
from rolecall.runner.runs.runner_process import COLLECTIONS

COMMANDS = (["run"], ["plan", "--all"], ["replay", "record.json"], ["validate"])


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str | None], None]:
    """Return a function that makes a version of ansible-core the installed one, or none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)
    original = importlib.metadata.version

    def installed(found: str | None) -> None:
        def version(name: str) -> str:
            if name != "ansible-core":
                return original(name)
            if found is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return found

        monkeypatch.setattr("rolecall.cli.ansible_environment.version", version)

    return installed


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("2.17.14", "found ansible-core 2.17.14, expected 2.18 or newer"),
        ("2.9.27", "found ansible-core 2.9.27, expected 2.18 or newer"),
        (None, "ansible-core is not installed"),
    ],
)
def test_a_command_without_a_usable_ansible_core_fails_with_one_line_and_reads_nothing(
    command: list[str],
    found: str | None,
    message: str,
    install: Callable[[str | None], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(found)
    assert main(command) == 1
    captured = capsys.readouterr()
    advice = "install it with pip install 'ansible-core>=2.18'"
    assert captured.err == f"rolecall {command[0]}: {message}: {advice}\n"
    assert not captured.out


def test_the_drop_in_logs_an_error(install: Callable[[str | None], None]) -> None:
    install("2.17.14")
    with capture_logs() as lines:
        assert ansible_operator.main(["run"]) == 1
    (line,) = lines
    assert line["log_level"] == "error"
    assert "found ansible-core 2.17.14, expected 2.18 or newer" in line["error"]


@pytest.mark.parametrize("found", ["2.18.0", "2.18.0rc1", "2.22.0.dev0", "3.0.0"])
def test_every_other_version_passes(
    found: str, install: Callable[[str | None], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(found)
    main(["validate"])
    assert "ansible-core" not in capsys.readouterr().err


@pytest.mark.parametrize("collection", ["rolecall", "operator_sdk"])
def test_the_collections_of_rolecall_accept_the_oldest_usable_ansible_core(collection: str) -> None:
    text = (COLLECTIONS / "ansible_collections" / collection / "util" / "meta" / "runtime.yml").read_text()
    assert yaml.safe_load(text)["requires_ansible"] == f">={MINIMUM}.0"
