from pathlib import Path

import pytest

from rolecall.cli.ansible_environment import absolute_paths, ansible_defaults_for, unless_configured
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from tests.support.ansible_settings import environment, write_config

__all__ = ["environment"]


@pytest.mark.parametrize(
    ("key", "default", "user"),
    [
        ("gathering", "explicit", "implicit"),
        ("allow_broken_conditionals", "true", "false"),
        ("allow_broken_conditionals", "true", "true"),
    ],
)
def test_default_applies_unless_environment_or_ansible_cfg_has_a_value(
    environment: dict[str, str], key: str, default: str, user: str
) -> None:
    variable = f"ANSIBLE_{key.upper()}"
    assert unless_configured(key, default, environment) == {variable: default}
    assert unless_configured(key, "", environment) == {}
    assert unless_configured(key, default, environment | {variable: user}) == {}
    write_config(environment, f"{key} = {user}")
    assert unless_configured(key, default, environment) == {}


def test_invalid_ansible_cfg_counts_as_empty(environment: dict[str, str]) -> None:
    write_config(environment, "[[[\nno key")
    assert unless_configured("gathering", "explicit", environment) == {"ANSIBLE_GATHERING": "explicit"}


def test_home_that_cannot_be_searched_counts_as_missing(environment: dict[str, str], tmp_path: Path) -> None:
    """A directory with too long a name can't be searched by any user, not even by root."""
    closed = environment | {"HOME": str(tmp_path / ("x" * 300))}
    assert unless_configured("gathering", "explicit", closed) == {"ANSIBLE_GATHERING": "explicit"}
    named = closed | {"ANSIBLE_CONFIG": f"{closed['HOME']}/ansible.cfg"}
    assert unless_configured("gathering", "explicit", named) == {"ANSIBLE_GATHERING": "explicit"}


def test_relative_paths_are_the_same_files_for_the_operator_and_its_runs(tmp_path: Path) -> None:
    environment = {"ANSIBLE_CONFIG": "mine/ansible.cfg", "ANSIBLE_COLLECTIONS_PATH": "c:/usr/share::./d"}
    found = absolute_paths(tmp_path, environment)
    assert found["ANSIBLE_CONFIG"] == str(tmp_path / "mine/ansible.cfg")
    assert found["ANSIBLE_COLLECTIONS_PATH"].split(":") == [str(tmp_path / "c"), "/usr/share", str(tmp_path / "d")]
    assert absolute_paths(tmp_path, {"ANSIBLE_CONFIG": ""}) == {}


@pytest.mark.parametrize(
    ("directories", "problem"),
    [
        (("a:b", "t", "w"), "the working directory is .*a:b.*: rename the directory"),
        (("a", "t:1", "w"), "TMPDIR: the path .*t:1.* has ':'"),
        (("a", "t", "w, x"), "--work-dir: the path .*w, x.* has ','"),
        (("a", "t", "it's"), "--work-dir: the path .*it's.* has \"'\""),
        (("a b", "t u", "w x"), ""),
        (("a,b", "t", "w"), ""),
    ],
)
def test_directory_that_runs_cannot_quote_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directories: tuple[str, str, str], problem: str
) -> None:
    working, temporary, work = (tmp_path / name for name in directories)
    working.mkdir()
    monkeypatch.chdir(working)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    settings = Settings(work_directory=work)
    if not problem:
        assert ansible_defaults_for(settings, {})
        return
    with pytest.raises(ConfigurationError, match=problem):
        ansible_defaults_for(settings, {})
