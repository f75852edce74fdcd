"""The arguments with which modules for files work in the plan's folder."""

from pathlib import Path

import pytest

from rolecall.runner.runs.planned.files import PlanFiles, Redirection


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "there").write_text("1")
    return folder


@pytest.fixture
def redirection(tmp_path: Path, machine: Path) -> Redirection:
    return Redirection(PlanFiles(tmp_path / "plan"), str(machine))


def test_what_is_written_lands_in_the_folder(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.copy", {"content": "x", "dest": f"{machine}/x", "mode": "0600"})
    assert found == {"content": "x", "dest": redirection.files.inside(f"{machine}/x"), "mode": "0600"}


def test_a_relative_path_to_write_begins_where_the_task_runs(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.lineinfile", {"path": "there", "line": "x"})
    assert found["path"] == redirection.files.inside(f"{machine}/there")


def test_a_source_is_searched_in_the_role_unless_its_path_is_absolute(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.template", {"src": "there", "dest": f"{machine}/x"})
    assert found["src"] == "there"
    redirection.files.writable(f"{machine}/there")
    found = redirection.redirect("ansible.builtin.template", {"src": f"{machine}/there", "dest": f"{machine}/x"})
    assert found["src"] == redirection.files.inside(f"{machine}/there")


def test_a_slash_at_the_end_stays(redirection: Redirection, machine: Path) -> None:
    assert redirection.redirect("ansible.builtin.copy", {"dest": f"{machine}/"})["dest"].endswith("/machine/")


@pytest.mark.parametrize("target", ["{machine}/there", "there", "../machine/there"])
def test_a_link_leads_to_the_copy(redirection: Redirection, machine: Path, target: str) -> None:
    arguments = {"src": target.format(machine=machine), "path": f"{machine}/link", "state": "link"}
    found = redirection.redirect("ansible.builtin.file", arguments)
    assert found["src"] == redirection.files.inside(f"{machine}/there")
    assert Path(found["src"]).read_text() == "1"


def test_a_recursive_change_has_a_copy_of_the_whole_tree(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.file", {"path": str(machine), "recurse": True, "mode": "0700"})
    assert (Path(found["path"]) / "there").read_text() == "1"


def test_find_takes_several_directories_in_one_text(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.find", {"paths": f"{machine},/nowhere"})
    assert found["paths"] == [str(machine), "/nowhere"]


def test_a_temporary_file_is_made_in_the_folder(redirection: Redirection) -> None:
    path = redirection.redirect("ansible.builtin.tempfile", {})["path"]
    assert redirection.files.is_inside(path)
    assert Path(path).is_dir()


def test_only_the_absence_of_a_file_is_a_removal(redirection: Redirection, machine: Path) -> None:
    arguments = {"path": f"{machine}/there", "state": "absent"}
    assert redirection.removed_by("ansible.builtin.file", arguments) == f"{machine}/there"
    assert redirection.removed_by("ansible.builtin.file", {**arguments, "state": "file"}) == ""
    assert redirection.removed_by("ansible.builtin.lineinfile", arguments) == ""
