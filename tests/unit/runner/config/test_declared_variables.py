from pathlib import Path

import pytest

from rolecall.runner.config.content import PlaybookContent, RoleContent, declared_variables
from rolecall.runner.config.watches import load_watches

SPECS = "argument_specs: {main: {options: {size: {type: int}, pod_count: {}}}, other: {options: {not_this: {}}}}\n"
WATCH = (
    "- {group: test.rolecall.dev, version: v1, kind: Thing, role: thing, variables: declared, finalizer: FINALIZER}\n"
)


def role(folder: Path, **files: str) -> RoleContent:
    """Write a role with these files in ``meta``."""
    (folder / "meta").mkdir(parents=True)
    for name, text in files.items():
        (folder / "meta" / name.replace("__", ".")).write_text(text)
    return RoleContent(folder)


@pytest.mark.parametrize("name", ["argument_specs__yml", "argument_specs__yaml", "main__yml"])
def test_the_options_of_the_main_entry_point_are_declared(tmp_path: Path, name: str) -> None:
    assert declared_variables(role(tmp_path / "thing", **{name: SPECS})) == {"size", "pod_count"}


def test_the_file_of_the_specs_comes_before_the_metadata(tmp_path: Path) -> None:
    metadata = "argument_specs: {main: {options: {old: {}}}}\n"
    assert "old" not in declared_variables(role(tmp_path / "thing", main__yml=metadata, argument_specs__yml=SPECS))


def test_a_role_without_options_takes_nothing(tmp_path: Path) -> None:
    assert declared_variables(role(tmp_path / "thing", argument_specs__yml="argument_specs: {main: {}}")) == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("galaxy_info: {}\n", "declare its variables in .*meta/argument_specs.yml"),
        ("argument_specs: {other: {}}\n", "argument_specs.yml: argument_specs has no entry point main"),
        ("argument_specs: {main: {options: [a]}}\n", "argument_specs.main.options: expected a mapping"),
        ("argument_specs: [\n", "argument_specs.yml: invalid YAML"),
    ],
)
def test_specs_that_declare_nothing_are_an_error_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declared_variables(role(tmp_path / "thing", argument_specs__yml=text))


def test_a_playbook_declares_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found the playbook .*site.yml"):
        declared_variables(PlaybookContent(tmp_path / "site.yml"))


def test_a_finalizer_of_its_own_has_its_own_variables(tmp_path: Path) -> None:
    role(tmp_path / "roles" / "thing", argument_specs__yml=SPECS)
    role(tmp_path / "roles" / "end", argument_specs__yml="argument_specs: {main: {options: {backup: {}}}}\n")
    file = tmp_path / "watches.yaml"
    file.write_text(WATCH.replace("FINALIZER", "{name: test.rolecall.dev/end, role: end}"))
    [watch] = load_watches(file, {}, tmp_path)
    assert watch.declared_for(finalizing=False) == frozenset({"size", "pod_count"})
    assert watch.declared_for(finalizing=True) == frozenset({"backup"})


def test_a_finalizer_without_a_role_has_those_of_the_main_role(tmp_path: Path) -> None:
    role(tmp_path / "roles" / "thing", argument_specs__yml=SPECS)
    file = tmp_path / "watches.yaml"
    file.write_text(WATCH.replace("FINALIZER", "{name: test.rolecall.dev/end, vars: {state: absent}}"))
    [watch] = load_watches(file, {}, tmp_path)
    assert watch.declared_for(finalizing=True) == frozenset({"size", "pod_count"})
