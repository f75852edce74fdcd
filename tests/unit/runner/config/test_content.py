from pathlib import Path

import pytest

from rolecall.runner.config.content import ContentFinder, PlaybookContent, RoleContent
from rolecall.runner.config.watch_keys import ENTRY
from rolecall.runner.config.yaml_reader import ConfigurationError, MappingReader


def found(directory: Path, role: str, **environment: str) -> Path:
    """Return where a role is found; raise the mistake that is noted when it is not."""
    fields = MappingReader.of({"role": role}, ENTRY, "here")
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
    fields = MappingReader.of({"role": "nowhere", "playbook": "play.yml"}, ENTRY, "here")
    assert ContentFinder(tmp_path, {}).content(fields) == PlaybookContent(tmp_path / "play.yml")
    absolute = MappingReader.of({"playbook": str(tmp_path / "play.yml")}, ENTRY, "here")
    assert ContentFinder(Path("/"), {}).content(absolute) == PlaybookContent(tmp_path / "play.yml")


def test_nothing_named_is_nothing(tmp_path: Path) -> None:
    assert ContentFinder(tmp_path, {}).content(MappingReader.of({}, ENTRY, "here")) is None


def test_a_role_may_lie_in_the_working_directory(tmp_path: Path) -> None:
    role = make(tmp_path / "thing")
    assert found(tmp_path, "thing") == role
    assert found(tmp_path, "./thing") == role
