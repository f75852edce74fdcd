"""Other projects' code can't change, or read, what the caller has."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.isolation import IsolationError, check, isolated

from tests.support.homes import with_home

ISOLATE = (
    "import sys; from pathlib import Path; from bench.isolation import isolated; from subprocess import call; "
    "sys.exit(call(isolated(sys.argv[3:], Path(sys.argv[1]), writable=[Path(sys.argv[2])])))"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a stand-in for the caller's home directory, with files."""
    home = tmp_path / "caller"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube/config").write_text("the caller's")
    return home


def run_isolated(home: Path, script: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell script in isolation, by a caller with this home directory, in the writable directory ``copy``."""
    own, copy = home.parent / "own", home.parent / "copy"
    own.mkdir(exist_ok=True)
    copy.mkdir(exist_ok=True)
    command = [sys.executable, "-c", ISOLATE, str(own), str(copy), "sh", "-c", f"cd {copy}; {script}"]
    return subprocess.run(with_home(home, home.parent / "passwd", command), capture_output=True, text=True, check=False)


def content(directory: Path) -> dict[Path, str]:
    """Return the content of all files of a directory."""
    return {path: path.read_text() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "script",
    [
        'eval "echo taken > ~root/.kube/config"',
        "echo taken > {home}/.kube/config",
        "rm -rf {home}",
        "mv {home} {home}.old",
        "echo taken > {home}/../new",
        "ln -s {home} link; echo taken > link/.kube/config",
        "mkdir -p a/b; (cd a/b; echo taken > ../../../caller/.kube/config)",
        "umount {home}; umount -l {home}; echo taken > {home}/.kube/config",
        "umount -l /tmp; rm -rf {home}/.kube",
        "for root in /proc/[0-9]*/root /proc/[0-9]*/cwd; do rm -rf $root{home} $root/{home}/.kube; done",
        "mount -o remount,bind,rw /; echo taken > {home}/new",
        "unshare --user --map-root-user --mount sh -c 'umount -l /tmp; rm -rf {home}/.kube'",
        "{python} -c 'import os, pwd; os.remove(pwd.getpwuid(os.getuid()).pw_dir + \"/.kube/config\")'",
    ],
)
def test_nothing_that_foreign_code_does_changes_what_the_caller_has(home: Path, script: str) -> None:
    run_isolated(home, "true")  # makes its directories
    before = content(home.parent)
    done = run_isolated(home, f"{script.format(home=home, python=sys.executable)}; echo mine > own")
    after = content(home.parent)
    assert (home.parent / "copy/own").read_text() == "mine\n", done.stderr
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    scratch = {home.parent / "own", home.parent / "copy"}
    assert not {path for path in changed if not scratch & {*path.parents}}


def test_home_of_the_password_file_is_the_directory_home_which_does_not_have_the_callers_files(home: Path) -> None:
    done = run_isolated(home, f"cat {home}/.kube/config; mkdir ~root/.kube; echo own > ~root/.kube/config")
    assert "the caller's" not in done.stdout
    assert (home.parent / "own/home/.kube/config").read_text() == "own\n"


def test_python_environment_terminals_and_temporary_files_work(home: Path) -> None:
    code = "import kubernetes, os, pty, tempfile; pty.openpty(); tempfile.TemporaryFile(dir='/dev/shm').close()"
    done = run_isolated(home, f'{sys.executable} -c "{code}" < /dev/null 2>&1 && yes | head -n 1')
    assert (done.returncode, done.stdout) == (0, "y\n"), done.stdout


def test_directory_that_contains_a_home_directory_is_rejected(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(IsolationError, match=f"contains the home directory {home}"):
        isolated(["true"], home.parent, readable=[home.parent])


def test_machine_that_cannot_isolate_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    failing = "import sys; sys.exit('isolation failed: unshare: Operation not permitted')"
    monkeypatch.setattr("bench.isolation.isolated", lambda *_: [sys.executable, "-c", failing])
    with pytest.raises(IsolationError, match="unshare: Operation not permitted; use Linux"):
        check()
