from pathlib import Path

import pytest

from rolecall.runner.config.content import ContentFinder, PlaybookContent, RoleContent, declared_variables
from rolecall.runner.config.watch_keys import ENTRY
from rolecall.runner.config.watches import load_watches
from rolecall.runner.config.yaml_reader import ConfigurationError, MappingReader


def found(directory: Path, role: str, **environment: str) -> Path:
    """Return where a role is found; raise the mistake that is noted when it is not."""
    fields = MappingReader({"role": role}, ENTRY, "here")
    content = ContentFinder(directory, environment).content(fields)
    if fields.errors:
        raise fields.errors[0]
    assert isinstance(content, RoleContent)
    return content.path


def make(path: Path) -> Path:
    """Make a folder and return it."""
    path.mkdir(parents=True)
    return path


def test_an_absolute_role_is_taken_as_it_is(tmp_path: Path) -> None:
    role = make(tmp_path / "anywhere" / "thing")
    make(tmp_path / "roles" / "thing")
    assert found(tmp_path, str(role)) == role


def test_a_collections_role_is_found_in_the_first_directory_that_has_it(tmp_path: Path) -> None:
    make(tmp_path / "first" / "ansible_collections")
    role = make(tmp_path / "second" / "ansible_collections" / "a" / "b" / "roles" / "c")
    path = f"{tmp_path}/first:{tmp_path}/second"
    assert found(tmp_path, "a.b.c", ANSIBLE_COLLECTIONS_PATH=path) == role


def test_collections_lie_in_the_home_directory_by_default(tmp_path: Path) -> None:
    role = make(tmp_path / ".ansible" / "collections" / "ansible_collections" / "a" / "b" / "roles" / "c")
    assert found(tmp_path / "elsewhere", "a.b.c", HOME=str(tmp_path), ANSIBLE_COLLECTIONS_PATH="") == role


def test_a_role_with_three_parts_may_be_a_plain_one(tmp_path: Path) -> None:
    role = make(tmp_path / "roles" / "a.b.c")
    assert found(tmp_path, "a.b.c") == role


def test_the_roles_path_is_searched_before_the_working_directory(tmp_path: Path) -> None:
    make(tmp_path / "roles" / "thing")
    nested = make(tmp_path / "shared" / "roles" / "thing")
    assert found(tmp_path, "thing", ANSIBLE_ROLES_PATH="missing:shared") == nested
    direct = make(tmp_path / "shared" / "thing")
    assert found(tmp_path, "thing", ANSIBLE_ROLES_PATH="missing:shared") == direct


def test_a_file_is_no_role(tmp_path: Path) -> None:
    make(tmp_path / "roles")
    (tmp_path / "roles" / "thing").write_text("")
    with pytest.raises(ConfigurationError, match="not found"):
        found(tmp_path, "thing")


def test_a_role_that_is_nowhere_is_an_error_with_every_place_in_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        found(tmp_path, "a.b.c", ANSIBLE_COLLECTIONS_PATH="/c1:/c2", ANSIBLE_ROLES_PATH="/r")
    places = (
        "/c1/ansible_collections/a/b/roles/c, /c2/ansible_collections/a/b/roles/c, "
        f"/r/a.b.c, /r/roles/a.b.c, {tmp_path}/roles/a.b.c, {tmp_path}/a.b.c"
    )
    assert str(raised.value) == f"here, key role: role: a.b.c not found (looked for {places})"


def test_a_playbook_is_relative_to_the_working_directory_and_wins(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text("[]")
    fields = MappingReader({"role": "nowhere", "playbook": "play.yml"}, ENTRY, "here")
    assert ContentFinder(tmp_path, {}).content(fields) == PlaybookContent(tmp_path / "play.yml")
    absolute = MappingReader({"playbook": str(tmp_path / "play.yml")}, ENTRY, "here")
    assert ContentFinder(Path("/"), {}).content(absolute) == PlaybookContent(tmp_path / "play.yml")


def test_nothing_named_is_nothing(tmp_path: Path) -> None:
    assert ContentFinder(tmp_path, {}).content(MappingReader({}, ENTRY, "here")) is None


def test_a_role_may_lie_in_the_working_directory(tmp_path: Path) -> None:
    role = make(tmp_path / "thing")
    assert found(tmp_path, "thing") == role
    assert found(tmp_path, "./thing") == role


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
