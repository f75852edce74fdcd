"""The plan's folder over the files of this machine."""

from pathlib import Path

import pytest

from rolecall.runner.runs.planned import files as plan_files
from rolecall.runner.runs.planned.files import PlanFiles, TooLargeError


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
