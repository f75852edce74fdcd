import os
from pathlib import Path

import pytest

from rolecall.runner.config.content import RoleContent
from rolecall.runner.runs import content as content_files
from rolecall.runner.runs.content import digests_of


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Give the directory "files" of the role in the temporary directory."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_a_file_that_cannot_be_read_to_its_end_is_not_read(tmp_path: Path, files: Path) -> None:
    os.mkfifo(files / "pipe")
    (files / "gone").symlink_to("nowhere")
    assert set(digests_of([RoleContent(tmp_path)])) == {files / "pipe"}


def test_a_large_file_has_changed_when_it_was_written(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_files, "_LARGE_BYTES", 3)
    (files / "large").write_text("1234")
    before = digests_of([RoleContent(tmp_path)])
    os.utime(files / "large", (1, 1))
    assert digests_of([RoleContent(tmp_path)]) != before


def test_a_small_file_has_changed_when_its_content_differs(tmp_path: Path, files: Path) -> None:
    (files / "small").write_text("1234")
    before = digests_of([RoleContent(tmp_path)])
    os.utime(files / "small", (1, 1))
    assert digests_of([RoleContent(tmp_path)]) == before
    (files / "small").write_text("4321")
    assert digests_of([RoleContent(tmp_path)]) != before


def test_a_role_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert digests_of([RoleContent(tmp_path / "gone")]) == {}
