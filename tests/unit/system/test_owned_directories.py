import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rolecall.system.files import OwnedDirectory, remove_abandoned

PREFIX = "rolecall-test-"
OWN_ONE_AND_WAIT = f"""
import sys
from rolecall.system.files import OwnedDirectory
print(OwnedDirectory.make({PREFIX!r}).path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary directory of the test's own, here and in processes below."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_directory_is_private_and_goes_with_remove(temporary: Path) -> None:
    directory = OwnedDirectory.make(PREFIX)
    (directory.path / "file").write_text("content")
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert directory.path.name.startswith(PREFIX)
    directory.remove()
    assert list(temporary.iterdir()) == []


def test_the_directory_of_a_killed_process_goes_with_the_next_one_that_is_made(temporary: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWN_ONE_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    abandoned = Path(owner.stdout.readline().decode().strip())
    (abandoned / "file").write_text("content")
    kept = OwnedDirectory.make(PREFIX)
    assert abandoned.exists(), "its process lives"
    owner.kill()
    owner.communicate()
    last = OwnedDirectory.make(PREFIX)
    assert sorted(temporary.iterdir()) == sorted([kept.path, last.path])


def test_other_names_and_links_stay(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"{PREFIX}link").symlink_to(temporary / "elsewhere")
    (temporary / f"{PREFIX}file").write_text("content")
    remove_abandoned(PREFIX)
    assert sorted(os.listdir(temporary)) == ["elsewhere", f"{PREFIX}file", f"{PREFIX}link"]  # noqa: PTH208
