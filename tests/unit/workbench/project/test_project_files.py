from pathlib import Path

import pytest

from rolecall.workbench.project.scaffold import ProjectFiles, ScaffoldError


def files(folder: Path) -> dict[str, str]:
    """Return every file below a folder, with its text."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_new_files_and_new_texts_are_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    ProjectFiles(tmp_path, {"a/b/new": "2"}, {"old": "1 and 3"}).write()
    assert files(tmp_path) == {"old": "1 and 3", "a/b/new": "2"}


def test_everything_that_stands_in_the_way_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    (tmp_path / "c").write_text("mine")
    (tmp_path / "d").symlink_to("nowhere")
    (tmp_path / "e").mkdir()
    before = files(tmp_path)
    with pytest.raises(ScaffoldError) as refused:
        ProjectFiles(tmp_path, {"a": "1", "b": "1", "c/x": "1", "d": "1", "e": "1"}, {"b": "2"}).write()
    assert str(refused.value).splitlines()[1:] == [
        "  b",
        f"  {tmp_path / 'c'} (expected a directory)",
        "  d",
        "  e",
        "Nothing was written.",
    ]
    assert files(tmp_path) == before


def test_when_writing_fails_what_was_written_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    with pytest.raises(ScaffoldError, match="Nothing was written"):
        ProjectFiles(tmp_path, {"a/new": "2", "a/new/below": "3"}, {"old": "4"}).write()
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]
    assert files(tmp_path) == {"old": "1"}


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"too long.*Nothing was written"):
        ProjectFiles(tmp_path, {"x" * 300: "1"}, {}).write()
    assert files(tmp_path) == {}
