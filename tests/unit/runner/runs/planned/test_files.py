"""The plan's folder over the files of this machine.

The arguments with which modules for files work in the plan's folder.
"""

from pathlib import Path

import pytest

from rolecall.runner.runs.planned import files as plan_files
from rolecall.runner.runs.planned.files import PlanFiles, Redirection, TooLargeError


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    (folder / "inner").mkdir(parents=True)
    (folder / "one").write_text("1")
    (folder / "inner" / "two").write_text("2")
    return folder


@pytest.fixture
def files(tmp_path: Path) -> PlanFiles:
    (tmp_path / "plan").mkdir()
    return PlanFiles(tmp_path / "plan")


def test_a_file_is_copied_before_it_is_changed(files: PlanFiles, machine: Path) -> None:
    own = Path(files.writable(str(machine / "one")))
    own.write_text("changed")
    assert (machine / "one").read_text() == "1"
    assert Path(files.readable(str(machine / "one"))).read_text() == "changed"
    assert files.readable(str(machine / "inner/two")) == str(machine / "inner/two")


def test_a_new_file_has_a_directory_only_where_the_machine_has_one(files: PlanFiles, machine: Path) -> None:
    Path(files.writable(str(machine / "new"))).write_text("new")
    assert not Path(files.writable(str(machine / "missing/new"))).parent.exists()


def test_what_is_hidden_is_not_read_and_not_copied_again(files: PlanFiles, machine: Path) -> None:
    files.hide(str(machine / "inner"))
    assert not Path(files.readable(str(machine / "inner/two"))).exists()
    assert not Path(files.writable(str(machine / "inner/two"))).exists()
    assert (machine / "inner/two").exists()


def test_a_tree_is_the_machine_s_until_the_run_changes_something(files: PlanFiles, machine: Path) -> None:
    assert files.tree(str(machine)) == str(machine)
    Path(files.writable(str(machine / "new"))).write_text("new")
    files.hide(str(machine / "one"))
    tree = Path(files.tree(str(machine)))
    assert {str(path.relative_to(tree)) for path in tree.rglob("*")} == {"inner", "inner/two", "new"}


def test_a_tree_that_is_too_large_is_refused(files: PlanFiles, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_files, "MOST_COPIED_BYTES", 1)
    files.writable(str(machine))
    with pytest.raises(TooLargeError):
        files.tree(str(machine))


def test_a_link_of_the_machine_is_copied_as_what_it_leads_to(files: PlanFiles, machine: Path) -> None:
    (machine / "link").symlink_to(machine / "one")
    own = Path(files.writable(str(machine / "link")))
    own.write_text("changed")
    assert (machine / "one").read_text() == "1"


def test_results_show_the_paths_of_the_machine(files: PlanFiles, machine: Path) -> None:
    own = files.writable(str(machine / "one"))
    result = {"path": own, "list": [f"see {own}"], "changed": True}
    assert files.outward(result) == {"path": f"{machine}/one", "list": [f"see {machine}/one"], "changed": True}


def test_a_program_is_given_the_files_that_the_run_has_written(files: PlanFiles, machine: Path) -> None:
    Path(files.writable(str(machine / "new"))).write_text("new")
    Path(files.inside(str(machine / "fresh"))).mkdir()
    words = f"cat {machine}/new {machine}/one > '{machine}/fresh/x'"
    new, fresh = files.inside(f"{machine}/new"), files.inside(f"{machine}/fresh/x")
    assert files.inward(words) == f"cat {new} {machine}/one > '{fresh}'"
    assert files.inward({"argv": [f"--in={machine}/new"]}) == {"argv": [f"--in={new}"]}


@pytest.fixture
def file_arguments_machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "there").write_text("1")
    return folder


@pytest.fixture
def redirection(tmp_path: Path, file_arguments_machine: Path) -> Redirection:
    return Redirection(PlanFiles(tmp_path / "plan"), str(file_arguments_machine))


def test_what_is_written_lands_in_the_folder(redirection: Redirection, file_arguments_machine: Path) -> None:
    found = redirection.redirect(
        "ansible.builtin.copy", {"content": "x", "dest": f"{file_arguments_machine}/x", "mode": "0600"}
    )
    assert found == {"content": "x", "dest": redirection.files.inside(f"{file_arguments_machine}/x"), "mode": "0600"}


def test_a_relative_path_to_write_begins_where_the_task_runs(
    redirection: Redirection, file_arguments_machine: Path
) -> None:
    found = redirection.redirect("ansible.builtin.lineinfile", {"path": "there", "line": "x"})
    assert found["path"] == redirection.files.inside(f"{file_arguments_machine}/there")


def test_a_source_is_searched_in_the_role_unless_its_path_is_absolute(
    redirection: Redirection, file_arguments_machine: Path
) -> None:
    found = redirection.redirect("ansible.builtin.template", {"src": "there", "dest": f"{file_arguments_machine}/x"})
    assert found["src"] == "there"
    redirection.files.writable(f"{file_arguments_machine}/there")
    found = redirection.redirect(
        "ansible.builtin.template", {"src": f"{file_arguments_machine}/there", "dest": f"{file_arguments_machine}/x"}
    )
    assert found["src"] == redirection.files.inside(f"{file_arguments_machine}/there")


def test_a_slash_at_the_end_stays(redirection: Redirection, file_arguments_machine: Path) -> None:
    assert redirection.redirect("ansible.builtin.copy", {"dest": f"{file_arguments_machine}/"})["dest"].endswith(
        "/machine/"
    )


@pytest.mark.parametrize("target", ["{machine}/there", "there", "../machine/there"])
def test_a_link_leads_to_the_copy(redirection: Redirection, file_arguments_machine: Path, target: str) -> None:
    arguments = {
        "src": target.format(machine=file_arguments_machine),
        "path": f"{file_arguments_machine}/link",
        "state": "link",
    }
    found = redirection.redirect("ansible.builtin.file", arguments)
    assert found["src"] == redirection.files.inside(f"{file_arguments_machine}/there")
    assert Path(found["src"]).read_text() == "1"


def test_a_recursive_change_has_a_copy_of_the_whole_tree(
    redirection: Redirection, file_arguments_machine: Path
) -> None:
    found = redirection.redirect(
        "ansible.builtin.file", {"path": str(file_arguments_machine), "recurse": True, "mode": "0700"}
    )
    assert (Path(found["path"]) / "there").read_text() == "1"


def test_find_takes_several_directories_in_one_text(redirection: Redirection, file_arguments_machine: Path) -> None:
    found = redirection.redirect("ansible.builtin.find", {"paths": f"{file_arguments_machine},/nowhere"})
    assert found["paths"] == [str(file_arguments_machine), "/nowhere"]


def test_a_temporary_file_is_made_in_the_folder(redirection: Redirection) -> None:
    path = redirection.redirect("ansible.builtin.tempfile", {})["path"]
    assert redirection.files.is_inside(path)
    assert Path(path).is_dir()


def test_only_the_absence_of_a_file_is_a_removal(redirection: Redirection, file_arguments_machine: Path) -> None:
    arguments = {"path": f"{file_arguments_machine}/there", "state": "absent"}
    assert redirection.removed_by("ansible.builtin.file", arguments) == f"{file_arguments_machine}/there"
    assert redirection.removed_by("ansible.builtin.file", {**arguments, "state": "file"}) == ""
    assert redirection.removed_by("ansible.builtin.lineinfile", arguments) == ""
