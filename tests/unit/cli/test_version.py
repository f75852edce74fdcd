import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.cli.version import commit, patches


def git(directory: Path, *words: str) -> str:
    """Run git in a directory, as somebody, and return what it printed."""
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    return subprocess.run(
        ["git", "-C", str(directory), *author, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give git the time that a busy machine needs; without an answer, the commit is unknown."""
    monkeypatch.setattr("rolecall.cli.version._GIT_SECONDS", 60.0)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository that could be this project's, with one commit."""
    (tmp_path / "pyproject.toml").touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "First")
    return tmp_path


def test_the_command_and_the_flag_print_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    printed = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, printed)
    first = [line.split()[0] for line in printed.splitlines()]
    assert first[:5] == ["rolecall", "commit", "Python", "ansible-core", "patches"]
    assert "  fork: in use\n" in printed


def test_programs_read_the_versions_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "rolecall": version("rolecall"),
        "commit": commit(),
        "python": platform.python_version(),
        "ansible-core": version("ansible-core"),
        "patches": patches(),
    }


def test_the_commit_of_a_checkout_says_when_files_have_changed_since(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert commit(checkout) == head
    (checkout / "pyproject.toml").write_text("changed")
    assert commit(checkout) == f"{head}-dirty"


def test_a_repository_around_an_installation_is_not_taken_for_the_checkout(checkout: Path) -> None:
    assert commit(checkout / "lib") == "unknown"


def test_without_git_the_commit_is_unknown(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit(checkout) == "unknown"


def test_the_commit_is_the_one_that_pip_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "rolecall-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: rolecall\nVersion: 1.0\n")
    (installed / "direct_url.json").write_text('{"url": "https://example.com", "vcs_info": {"commit_id": "abc"}}')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert commit(tmp_path) == "abc"


def test_the_commit_is_the_one_in_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commit.txt").write_text("abc\n")
    monkeypatch.setattr("rolecall.cli.version._OF_WHEEL", tmp_path / "commit.txt")
    assert commit(tmp_path) == "abc"


def test_a_checkout_takes_precedence_over_the_commit_of_an_older_wheel(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path_factory.mktemp("old") / "commit.txt"
    file.write_text("abc\n")
    monkeypatch.setattr("rolecall.cli.version._OF_WHEEL", file)
    assert commit(checkout) == git(checkout, "rev-parse", "HEAD")
