from pathlib import Path

import pytest

from rolecall.runner.config.content import (
    ContentFinder,
    PlaybookContent,
    RoleContent,
    declared_variables,
    validated_options,
)
from rolecall.runner.config.watch_keys import ENTRY
from rolecall.runner.config.watches import load_watches
from rolecall.runner.config.yaml_reader import ConfigurationError, MappingReader


def found(directory: Path, role: str, **environment: str) -> Path:
    """Return the directory of a role. Raise the recorded error if there is none."""
    fields = MappingReader({"role": role}, ENTRY, "here")
    content = ContentFinder(directory, environment).content(fields)
    if fields.errors:
        raise fields.errors[0]
    assert isinstance(content, RoleContent)
    return content.path


@pytest.mark.parametrize(
    ("directories", "role", "environment"),
    [
        (["anywhere/thing", "roles/thing"], "TMP/anywhere/thing", {}),
        (["second/ansible_collections/a/b/roles/c"], "a.b.c", {"ANSIBLE_COLLECTIONS_PATH": "TMP/first:TMP/second"}),
        ([".ansible/collections/ansible_collections/a/b/roles/c"], "a.b.c", {"HOME": "TMP"}),
        (["roles/a.b.c"], "a.b.c", {}),
        (["shared/roles/thing", "roles/thing"], "thing", {"ANSIBLE_ROLES_PATH": "missing:shared"}),
        (["shared/thing", "shared/roles/thing"], "thing", {"ANSIBLE_ROLES_PATH": "missing:shared"}),
        (["roles/thing", "thing"], "thing", {}),
        (["thing"], "thing", {}),
        (["thing"], "./thing", {}),
    ],
)
def test_role_is_found_in_the_first_directory_that_has_it(
    tmp_path: Path, directories: list[str], role: str, environment: dict[str, str]
) -> None:
    (tmp_path / "first" / "ansible_collections").mkdir(parents=True)
    for directory in directories:
        (tmp_path / directory).mkdir(parents=True)
    given = {name: value.replace("TMP", str(tmp_path)) for name, value in environment.items()}
    assert found(tmp_path, role.replace("TMP", str(tmp_path)), **given) == tmp_path / directories[0]


def test_missing_role_is_an_error_with_all_searched_paths(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        found(tmp_path, "a.b.c", ANSIBLE_COLLECTIONS_PATH="/c1:/c2", ANSIBLE_ROLES_PATH="/r")
    places = (
        "/c1/ansible_collections/a/b/roles/c, /c2/ansible_collections/a/b/roles/c, "
        f"/r/a.b.c, /r/roles/a.b.c, {tmp_path}/roles/a.b.c, {tmp_path}/a.b.c"
    )
    assert str(raised.value) == f"here, key role: role: a.b.c not found (looked for {places})"


def test_playbook_is_relative_to_the_working_directory_and_takes_precedence(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text("[]")
    fields = MappingReader({"role": "nowhere", "playbook": "play.yml"}, ENTRY, "here")
    assert ContentFinder(tmp_path, {}).content(fields) == PlaybookContent(tmp_path / "play.yml")
    absolute = MappingReader({"playbook": str(tmp_path / "play.yml")}, ENTRY, "here")
    assert ContentFinder(Path("/"), {}).content(absolute) == PlaybookContent(tmp_path / "play.yml")


def test_entry_without_role_and_playbook_has_no_content(tmp_path: Path) -> None:
    assert ContentFinder(tmp_path, {}).content(MappingReader({}, ENTRY, "here")) is None


SPECS = "argument_specs: {main: {options: {size: {type: int}, pod_count: {}}}, other: {options: {not_this: {}}}}\n"
OPTIONS = frozenset({"size", "pod_count"})
WATCH = (
    "- {group: test.rolecall.dev, version: v1, kind: Thing, role: thing, variables: declared, finalizer: FINALIZER}\n"
)


def role(directory: Path, **files: str) -> RoleContent:
    """Write a role with these files in ``meta``."""
    (directory / "meta").mkdir(parents=True)
    for name, text in files.items():
        (directory / "meta" / name.replace("__", ".")).write_text(text)
    return RoleContent(directory)


@pytest.mark.parametrize("name", ["argument_specs__yml", "argument_specs__yaml", "main__yml"])
def test_options_of_the_main_entry_point_are_declared(tmp_path: Path, name: str) -> None:
    assert declared_variables(role(tmp_path / "thing", **{name: SPECS})) == {"size", "pod_count"}


def test_argument_specs_file_takes_precedence_over_metadata(tmp_path: Path) -> None:
    metadata = "argument_specs: {main: {options: {old: {}}}}\n"
    assert "old" not in declared_variables(role(tmp_path / "thing", main__yml=metadata, argument_specs__yml=SPECS))


def test_role_without_options_declares_nothing(tmp_path: Path) -> None:
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
def test_invalid_specs_are_an_error_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declared_variables(role(tmp_path / "thing", argument_specs__yml=text))


@pytest.mark.parametrize(
    ("finalizer", "declared"), [("role: end", frozenset({"backup"})), ("vars: {state: absent}", OPTIONS)]
)
def test_finalizer_declares_the_variables_of_its_own_role_or_the_main_one(
    tmp_path: Path, finalizer: str, declared: frozenset[str]
) -> None:
    role(tmp_path / "roles" / "thing", argument_specs__yml=SPECS)
    role(tmp_path / "roles" / "end", argument_specs__yml="argument_specs: {main: {options: {backup: {}}}}\n")
    file = tmp_path / "watches.yaml"
    file.write_text(WATCH.replace("FINALIZER", f"{{name: test.rolecall.dev/end, {finalizer}}}"))
    [watch] = load_watches(file, {}, tmp_path)
    assert watch.declared_for(finalizing=False) == OPTIONS
    assert watch.declared_for(finalizing=True) == declared


def test_role_below_a_colon_is_an_error(tmp_path: Path) -> None:
    """Runs find their role by ANSIBLE_ROLES_PATH, a list of directories that are separated by colons."""
    (tmp_path / "a:b" / "roles" / "thing").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="a:b/roles/thing: expected a path without ':'"):
        found(tmp_path / "a:b", "thing")


def test_validated_options_are_those_of_the_files_as_they_are_now(tmp_path: Path) -> None:
    role = RoleContent(tmp_path)
    assert validated_options(role) == {}
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "main.yml").write_text("argument_specs: {main: {options: {size: {type: int}}}}\n")
    assert validated_options(role) == {"size": {"type": "int"}}
    specs = tmp_path / "meta" / "argument_specs.yml"
    specs.write_text("argument_specs: {main: {options: {width: {type: int}}}}\n")
    assert validated_options(role) == {"width": {"type": "int"}}
    specs.write_text("argument_specs: {main: {options: {width: {type: int}, height: {}}}}\n")
    assert set(validated_options(role)) == {"width", "height"}


@pytest.mark.parametrize("text", ["{", "argument_specs: 1", "argument_specs: {main: {options: [a]}}", "[]"])
def test_invalid_argument_specs_validate_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "argument_specs.yml").write_text(text)
    assert validated_options(RoleContent(tmp_path)) == {}
    assert validated_options(PlaybookContent(tmp_path / "play.yml")) == {}
