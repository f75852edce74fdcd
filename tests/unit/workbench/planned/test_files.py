"""The plan's directory over the files of this machine, and the arguments with which modules work in it."""

from pathlib import Path

import pytest

from rolecall.workbench.planned.files import PlanFiles, Redirection, TooLargeError


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    directory = tmp_path / "machine"
    (directory / "inner").mkdir(parents=True)
    (directory / "one").write_text("1")
    (directory / "inner" / "two").write_text("2")
    return directory


@pytest.fixture
def files(tmp_path: Path) -> PlanFiles:
    (tmp_path / "plan").mkdir()
    return PlanFiles(tmp_path / "plan")


def test_too_large_tree_is_rejected(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "plan").mkdir()
    files = PlanFiles(tmp_path / "plan", max_copied_bytes=1)
    files.writable(str(machine))
    with pytest.raises(TooLargeError):
        files.tree(str(machine))


def test_link_is_copied_as_its_target(files: PlanFiles, machine: Path) -> None:
    (machine / "link").symlink_to(machine / "one")
    own = Path(files.writable(str(machine / "link")))
    own.write_text("changed")
    assert (machine / "one").read_text() == "1"


@pytest.fixture
def redirection(files: PlanFiles, machine: Path) -> Redirection:
    return Redirection(files, str(machine))


@pytest.mark.parametrize("path", ["{machine}/one", "one"], ids=["absolute", "relative to the task's directory"])
def test_path_to_write_is_mapped(redirection: Redirection, machine: Path, path: str) -> None:
    arguments = {"line": "x", "path": path.format(machine=machine), "mode": "0600"}
    found = redirection.redirect("ansible.builtin.lineinfile", arguments)
    assert found == {**arguments, "path": redirection.files.inside(f"{machine}/one")}


def test_relative_source_stays_relative_to_the_role(redirection: Redirection, machine: Path) -> None:
    redirection.files.writable(f"{machine}/one")
    for source, expected in (("one", "one"), (f"{machine}/one", redirection.files.inside(f"{machine}/one"))):
        found = redirection.redirect("ansible.builtin.template", {"src": source, "dest": f"{machine}/x"})
        assert found["src"] == expected


def test_trailing_slash_is_kept(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.copy", {"dest": f"{machine}/"})
    assert found["dest"].endswith("/machine/")


@pytest.mark.parametrize("target", ["{machine}/one", "one", "../machine/one"])
def test_link_leads_to_the_copy(redirection: Redirection, machine: Path, target: str) -> None:
    arguments = {"src": target.format(machine=machine), "path": f"{machine}/link", "state": "link"}
    found = redirection.redirect("ansible.builtin.file", arguments)
    assert found["src"] == redirection.files.inside(f"{machine}/one")
    assert Path(found["src"]).read_text() == "1"


def test_recursive_change_has_a_copy_of_the_whole_tree(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.file", {"path": str(machine), "recurse": True, "mode": "0700"})
    assert (Path(found["path"]) / "one").read_text() == "1"


def test_find_accepts_several_directories_in_one_string(redirection: Redirection, machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.find", {"paths": f"{machine},/nowhere"})
    assert found["paths"] == [str(machine), "/nowhere"]


def test_temporary_file_is_in_the_plans_directory(redirection: Redirection) -> None:
    path = redirection.redirect("ansible.builtin.tempfile", {})["path"]
    assert redirection.files.is_inside(path)
    assert Path(path).is_dir()


def test_only_the_absence_of_a_file_is_a_removal(redirection: Redirection, machine: Path) -> None:
    arguments = {"path": f"{machine}/one", "state": "absent"}
    assert redirection.removed_by("ansible.builtin.file", arguments) == f"{machine}/one"
    assert redirection.removed_by("ansible.builtin.file", {**arguments, "state": "file"}) == ""
    assert redirection.removed_by("ansible.builtin.lineinfile", arguments) == ""
