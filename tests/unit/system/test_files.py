import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rolecall.system.files import OwnedDirectory, make_own_directory, remove_abandoned


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a directory like /tmp, where all users may create files."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the owner of a file or directory; without root, become another user instead."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def test_directory_and_parents_are_private(shared: Path) -> None:
    path = shared / "operator" / "runner"
    make_own_directory(path)
    make_own_directory(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("foreign", ["operator", "operator/runner"])
def test_directory_of_other_user_in_shared_one_is_rejected(
    shared: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    path = shared / "operator" / "runner"
    make_own_directory(path)
    give_away(shared / foreign, monkeypatch)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(path)


def test_symbolic_link_of_other_user_is_rejected(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "operator").symlink_to(shared)
    give_away(shared / "operator", monkeypatch)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(shared / "operator")


def test_mounted_volume_may_belong_to_any_user(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "operator" / "runner"
    make_own_directory(path)
    give_away(path, monkeypatch)
    monkeypatch.setattr(os.path, "ismount", lambda found: found == path)
    make_own_directory(path)
    assert path.is_dir()


PREFIX = "rolecall-test-"
OWN_ONE_AND_WAIT = f"""
import sys
from rolecall.system.files import OwnedDirectory
print(OwnedDirectory.make({PREFIX!r}).path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate temporary directory, here and in child processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_owned_directory_is_private_until_removed(temporary: Path) -> None:
    directory = OwnedDirectory.make(PREFIX)
    (directory.path / "file").write_text("content")
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert directory.path.name.startswith(PREFIX)
    directory.remove()
    assert list(temporary.iterdir()) == []


def test_directory_of_killed_process_is_removed_by_next_one(temporary: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWN_ONE_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    abandoned = Path(owner.stdout.readline().decode().strip())
    (abandoned / "file").write_text("content")
    kept = OwnedDirectory.make(PREFIX)
    assert abandoned.exists(), "its process is running"
    owner.kill()
    owner.communicate()
    last = OwnedDirectory.make(PREFIX)
    assert sorted(temporary.iterdir()) == sorted([kept.path, last.path])


def test_other_files_and_links_are_not_removed(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"{PREFIX}link").symlink_to(temporary / "elsewhere")
    (temporary / f"{PREFIX}file").write_text("content")
    remove_abandoned(PREFIX)
    assert sorted(os.listdir(temporary)) == ["elsewhere", f"{PREFIX}file", f"{PREFIX}link"]  # noqa: PTH208
