"""Updates of projects: random changes of user and scaffold, and a project of an older version on disk."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecall.cli.main import main
from rolecall.workbench.project.scaffold import (
    NewKind,
    create_api,
    init_project,
    originals_text,
    read_originals,
    scaffold_files,
)
from rolecall.workbench.project.update import Action, FileUpdate, merged_files

KEEP, DELETE, REPLACE, INSERT = "keep", "delete", "replace", "insert"
ORIGINAL = {path: [f"{path} {number}\n" for number in range(8)] for path in ("a", "b", "c")}
EDITS = st.lists(st.sampled_from([KEEP, KEEP, KEEP, DELETE, REPLACE, INSERT]), min_size=8, max_size=8)
CHANGES = st.fixed_dictionaries({path: st.none() | EDITS for path in ORIGINAL} | {"new": st.booleans()})


def changed(changes: Mapping[str, list[str] | bool | None], who: str) -> dict[str, str]:
    """Return the files after changes (None deletes a file), where each new line names its author."""
    files = {}
    for path, lines in ORIGINAL.items():
        edits = changes[path]
        if isinstance(edits, list):
            files[path] = "".join(_edited(line, edit, who) for edit, line in zip(edits, lines, strict=True))
    if changes["new"]:
        files["new"] = f"{who} alone\n"
    return files


def _edited(line: str, edit: str, who: str) -> str:
    parts = {KEEP: line, DELETE: "", REPLACE: f"{who} instead of {line}", INSERT: f"{line}{who} after {line}"}
    return parts[edit]


def updates(mine: Mapping[str, str], base: Mapping[str, str], new: Mapping[str, str]) -> dict[str, FileUpdate]:
    contents = {path: text.encode() for path, text in mine.items()}
    return {each.path: each for each in merged_files(contents.get, base, new, "rolecall 9")}


def after(mine: Mapping[str, str], update: Mapping[str, FileUpdate]) -> dict[str, str]:
    texts = dict(mine)
    for path, each in update.items():
        texts.pop(path, None)
        if each.after is not None:
            texts[path] = each.after.decode()
    return texts


@given(ours=CHANGES, theirs=CHANGES)
@settings(max_examples=150, deadline=None)
def test_random_changes_of_user_and_scaffold_are_merged_without_loss(
    ours: dict[str, list[str] | bool | None], theirs: dict[str, list[str] | bool | None]
) -> None:
    base = {path: "".join(lines) for path, lines in ORIGINAL.items()}
    mine, new = changed(ours, "user"), changed(theirs, "scaffold")
    update = updates(mine, base, new)
    result = after(mine, update)
    for path, text in mine.items():
        written = [line for line in text.splitlines() if line.startswith("user")]
        assert set(written) <= set(result.get(path, "").splitlines()), f"lines of the user are lost in {path}"
    for path, text in new.items():
        added = {line for line in text.splitlines() if line.startswith("scaffold")}
        kept = update[path].action is Action.KEPT if path in update else path not in mine
        assert kept or added <= set(result[path].splitlines()), f"lines of the scaffold are missing in {path}"
    deleted = base.keys() - mine.keys()
    assert not deleted & result.keys(), "files that the user deleted are back"
    assert all(result[path] == text for path, text in mine.items() if base.get(path) == new.get(path))
    assert updates(result, new, new) == {}
    clean = {path for path, each in update.items() if each.action in (Action.MERGED, Action.REPLACED, Action.CREATED)}
    again = after(result, updates(result, base, new))
    assert {path: again[path] for path in clean} == {path: result[path] for path in clean}


def test_records_of_the_user_are_kept_whole() -> None:
    update = updates({"a.jsonl": "mine\n"}, {"a.jsonl": "1\n"}, {"a.jsonl": "2\n"})
    assert [(each.action, each.after) for each in update.values()] == [(Action.KEPT, b"mine\n")]


def test_binary_file_is_kept_and_reported() -> None:
    [update] = merged_files({"a": b"\0mine"}.get, {"a": "1\n"}, {"a": "2\n"}, "rolecall 9")
    assert (update.action, update.after, update.reason[:13]) == (Action.KEPT, b"\0mine", "it is no text")


@pytest.fixture(name="project")
def project_of_an_older_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a committed project, as a version wrote it whose files differ from those of today."""
    monkeypatch.chdir(tmp_path)
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("shop", "v1", "Website")).write()
    files = read_originals(tmp_path)
    for path in ("deploy/kustomization.yaml", "tests/test_records.py"):
        del files[path]
        (tmp_path / path).unlink()
    files["build/old.sh"] = "echo old\n"
    files["PROJECT"] = files["PROJECT"].replace("scaffold: ", "scaffold: 0.0.")
    files["Makefile"] = files["Makefile"].replace("ENGINE ?=", "OLD_ENGINE ?=")
    files["README.md"] = files["README.md"].replace("# web", "# The old web")
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    (tmp_path / ".scaffold.jsonl").write_text(originals_text(files))
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(directory: Path, *arguments: str) -> None:
    author = ("-c", "user.name=user", "-c", "user.email=user@example.com")
    subprocess.run(["git", "-C", str(directory), *author, *arguments], check=True, capture_output=True)


def commit(directory: Path) -> None:
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "Change")


def texts(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): path.read_text()
        for path in directory.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def test_new_project_is_up_to_date_with_each_form_of_a_kind(tmp_path: Path) -> None:
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("shop", "v1", "Website")).write()
    create_api(tmp_path, NewKind("shop", "v1", "Policy", "policys", with_playbook=True)).write()
    create_api(tmp_path, NewKind("shop", "v1", "Cart", with_role=True, with_playbook=True)).write()
    written = texts(tmp_path)
    del written[".scaffold.jsonl"]
    assert scaffold_files(tmp_path) == written == read_originals(tmp_path)


def test_unchanged_project_becomes_a_new_one(project: Path) -> None:
    assert main(["update"]) == 0
    written = texts(project)
    del written[".scaffold.jsonl"]
    assert scaffold_files(project) == written == read_originals(project)


def test_changes_of_the_user_stay_and_conflicts_are_marked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme, makefile = project / "README.md", project / "Makefile"
    readme.write_text(readme.read_text().replace("# The old web", "# My shop"))
    makefile.write_text(f"{makefile.read_text()}\nmine:\n\techo mine\n")
    (project / "demo.yaml").unlink()
    (project / "build/old.sh").write_text("echo mine\n")
    commit(project)
    assert main(["update"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "rolecall update: resolve the conflicts, marked with '<<<<<<<', in README.md\n"
    assert "  created  tests/test_records.py\n" in printed.out
    assert "  kept     build/old.sh: you changed it, and the scaffold no longer has it\n" in printed.out
    assert readme.read_text().startswith("<<<<<<< yours\n# My shop\n=======\n# web\n>>>>>>> rolecall ")
    assert "\nENGINE ?=" in makefile.read_text()
    assert makefile.read_text().endswith("\nmine:\n\techo mine\n")
    assert not (project / "demo.yaml").exists()
    assert (project / "build/old.sh").read_text() == "echo mine\n"
    commit(project)
    assert main(["update"]) == 0, "a second update has nothing to do"


def test_removed_kind_loses_its_unchanged_files(project: Path) -> None:
    recorded = (project / "PROJECT").read_text()
    (project / "PROJECT").write_text(f"{recorded.partition('kinds:')[0]}kinds:\n")
    sample = project / "deploy/samples/website.yaml"
    sample.write_text(f"{sample.read_text()}# mine\n")
    commit(project)
    assert main(["update"]) == 0
    assert not (project / "roles/website").exists()
    assert "Website" not in (project / "watches.yaml").read_text()
    assert sample.read_text().endswith("# mine\n")


def test_dry_run_prints_the_changes_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "README.md").write_text("mine\n")
    before = texts(project)
    assert main(["update", "--dry-run"]) == 2
    printed = capsys.readouterr().out
    assert "  replaced Makefile\n" in printed
    assert "\n-OLD_ENGINE ?=" in printed
    assert "\n+ENGINE ?=" in printed
    assert texts(project) == before


def test_uncommitted_changes_are_rejected_unless_forced(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "watches.yaml").write_text("# mine\n")
    before = texts(project)
    assert main(["update"]) == 1
    assert "changes that aren't committed:\n  watches.yaml\n" in capsys.readouterr().err
    assert texts(project) == before
    assert main(["update", "--force"]) == 0
    assert (project / "watches.yaml").read_text() == "# mine\n"


def test_project_without_a_repository_is_rejected_unless_forced(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(project / ".git")
    assert main(["update"]) == 1
    assert "commit the project, or use --force (fatal: not a git repository" in capsys.readouterr().err
    assert main(["update", "--force"]) == 0


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        (".scaffold.jsonl", None, ".scaffold.jsonl: file not found"),
        (".scaffold.jsonl", "<<<<<<< HEAD\n", "expected an object with path and text in each line"),
        ("PROJECT", "projectName: web\ndomain: example.com\nkinds: [{group: a}]\n", "playbook of each kind"),
        ("PROJECT", "projectName: web\ndomain: example.com\nscaffold: 99.0\n", "install the newer version"),
        ("Makefile", "a directory", "Is a directory"),
    ],
)
def test_project_that_cannot_be_updated_is_one_error(
    path: str, text: str | None, error: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / path).unlink()
    if text == "a directory":
        (project / path).mkdir()
    elif text is not None:
        (project / path).write_text(text)
    before = texts(project)
    assert main(["update", "--force"]) == 1
    assert error in capsys.readouterr().err
    assert texts(project) == before


def test_file_keeps_its_mode(project: Path) -> None:
    (project / "Makefile").chmod(0o755)
    commit(project)
    main(["update"])
    assert (project / "Makefile").stat().st_mode & 0o777 == 0o755
