import os
import stat
from pathlib import Path

import pytest

from rolecall.system.files import make_own_directory


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Give a directory like /tmp, in which everybody may create files."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file or directory belong to another user; who is not root becomes that other user instead."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def test_a_directory_is_made_with_its_parents_for_its_owner_alone(shared: Path) -> None:
    path = shared / "operator" / "runner"
    make_own_directory(path)
    make_own_directory(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("foreign", ["operator", "operator/runner"])
def test_a_directory_of_another_user_where_everybody_may_make_some_is_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    path = shared / "operator" / "runner"
    make_own_directory(path)
    give_away(shared / foreign, monkeypatch)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(path)


def test_a_link_of_another_user_is_refused_wherever_it_leads(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "operator").symlink_to(shared)
    give_away(shared / "operator", monkeypatch)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(shared / "operator")


def test_a_mounted_volume_may_belong_to_anybody(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "operator" / "runner"
    make_own_directory(path)
    give_away(path, monkeypatch)
    monkeypatch.setattr(os.path, "ismount", lambda found: found == path)
    make_own_directory(path)
    assert path.is_dir()
