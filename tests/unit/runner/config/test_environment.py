import pwd
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rolecall.kube.references import GVK
from rolecall.runner.config.environment import (
    ansible_debug_logs,
    ansible_verbosity,
    home_variables,
    max_concurrent_reconciles,
    parse_boolean,
    roles_path,
    unless_configured,
    watch_namespaces,
)

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")
DASHED = GVK("my-group.io", "v1", "Thing")
SECRET = GVK("", "v1", "Secret")


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [(None, ()), ("", ()), (" ", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , ,b,", ("a", "b"))],
)
def test_the_environment_names_namespaces(text: str | None, namespaces: tuple[str, ...]) -> None:
    assert watch_namespaces({} if text is None else {"WATCH_NAMESPACE": text}) == namespaces


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_these_are_true(text: str) -> None:
    assert parse_boolean(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_these_are_false(text: str) -> None:
    assert parse_boolean(text) is False


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", "2"])
def test_nothing_else_is_a_boolean(text: str) -> None:
    with pytest.raises(ValueError, match=f"expected true or false, found {text!r}"):
        parse_boolean(text)


@pytest.mark.parametrize(("environment", "wanted"), [({}, False), ({"ANSIBLE_DEBUG_LOGS": "T"}, True)])
def test_the_environment_asks_for_the_output_of_runs(environment: dict[str, str], *, wanted: bool) -> None:
    assert ansible_debug_logs(environment) is wanted


def test_what_is_no_boolean_is_told_of_and_left_out() -> None:
    with capture_logs() as lines:
        assert ansible_debug_logs({"ANSIBLE_DEBUG_LOGS": "loud"}) is False
    [line] = lines
    assert (line["log_level"], line["envVar"]) == ("info", "ANSIBLE_DEBUG_LOGS")


@pytest.mark.parametrize(
    ("gvk", "name"),
    [(MEMCACHED, "MEMCACHED_CACHE_EXAMPLE_COM"), (SECRET, "SECRET_"), (DASHED, "THING_MY-GROUP_IO")],
)
def test_a_variable_is_named_after_kind_and_group(gvk: GVK, name: str) -> None:
    assert max_concurrent_reconciles(gvk, {f"MAX_CONCURRENT_RECONCILES_{name}": "3"}) == 3
    assert ansible_verbosity(gvk, {f"ANSIBLE_VERBOSITY_{name}": "4"}) == 4


@pytest.mark.parametrize(("text", "workers"), [("1", 1), ("12", 12), ("+2", 2)])
def test_workers_are_a_number_from_one_on(text: str, workers: int) -> None:
    assert max_concurrent_reconciles(SECRET, {"MAX_CONCURRENT_RECONCILES_SECRET_": text}) == workers


@pytest.mark.parametrize("text", ["0", "-1", "", "two", "1.5", " 1", "1_0"])
def test_other_workers_leave_it_to_the_flag_and_are_told_of(text: str) -> None:
    with capture_logs() as lines:
        assert max_concurrent_reconciles(SECRET, {"MAX_CONCURRENT_RECONCILES_SECRET_": text}) is None
    assert [(line["log_level"], line["envVar"]) for line in lines] == [("info", "MAX_CONCURRENT_RECONCILES_SECRET_")]


@pytest.mark.parametrize(("text", "verbosity"), [("0", 0), ("7", 7), ("8", None), ("-1", None), ("loud", None)])
def test_verbosity_is_a_number_from_0_to_7(text: str, verbosity: int | None) -> None:
    assert ansible_verbosity(SECRET, {"ANSIBLE_VERBOSITY_SECRET_": text}) == verbosity


def test_without_variables_the_flags_decide() -> None:
    with capture_logs() as lines:
        assert (max_concurrent_reconciles(SECRET, {}), ansible_verbosity(SECRET, {})) == (None, None)
    assert lines == []


def test_the_old_name_of_workers_counts_only_without_the_new_one_and_is_told_of() -> None:
    with capture_logs() as lines:
        assert max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2"}) == 2
    assert [line["replacedBy"] for line in lines] == ["MAX_CONCURRENT_RECONCILES_SECRET_"]
    assert max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2", "MAX_CONCURRENT_RECONCILES_SECRET_": "3"}) == 3
    assert (
        max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2", "MAX_CONCURRENT_RECONCILES_SECRET_": "many"}) is None
    )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give an environment in which nothing of Ansible is set; the user's empty ansible.cfg hides the machine's."""
    environment = {"HOME": str(tmp_path)}
    write_config(environment, "")
    return environment


def write_config(environment: dict[str, str], text: str) -> Path:
    """Write the ansible.cfg of the user and return its folder."""
    file = Path(environment["HOME"]) / ".ansible.cfg"
    file.write_text(f"[defaults]\n{text}\n")
    return file.parent


def test_playbooks_look_in_the_projects_roles_after_the_places_that_ansible_knows(environment: dict[str, str]) -> None:
    usual = "~/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles"
    assert roles_path(Path("/project"), environment) == f"{usual}:/project/roles"


def test_a_home_of_ansible_moves_its_roles(environment: dict[str, str]) -> None:
    found = roles_path(Path("/project"), environment | {"ANSIBLE_HOME": "/a"})
    assert found == "/a/roles:/usr/share/ansible/roles:/etc/ansible/roles:/project/roles"


def test_what_the_environment_says_comes_first(environment: dict[str, str]) -> None:
    given = {"ANSIBLE_ROLES_PATH": "/mine:shared:~/others"}
    write_config(environment, "roles_path = /config")
    assert roles_path(Path("/project"), environment | given) == "/mine:/project/shared:~/others:/project/roles"


def test_what_an_ansible_cfg_says_comes_first_relative_to_the_file(environment: dict[str, str]) -> None:
    folder = write_config(environment, "roles_path = /config:own ; a comment")
    assert roles_path(Path("/project"), environment) == f"/config:{folder}/own:/project/roles"


def test_the_config_that_the_environment_names_is_the_one(environment: dict[str, str], tmp_path: Path) -> None:
    write_config(environment, "roles_path = /users")
    (tmp_path / "named").mkdir()
    (tmp_path / "named/ansible.cfg").write_text("[defaults]\nroles_path = /named\n")
    environment["ANSIBLE_CONFIG"] = str(tmp_path / "named")
    assert roles_path(Path("/project"), environment) == "/named:/project/roles"


def test_the_projects_roles_are_named_once(environment: dict[str, str]) -> None:
    given = {"ANSIBLE_ROLES_PATH": "/project/roles:/mine"}
    assert roles_path(Path("/project"), environment | given) == "/project/roles:/mine"


def test_facts_follow_the_default_where_the_user_says_nothing(environment: dict[str, str]) -> None:
    assert unless_configured("gathering", "explicit", environment) == {"ANSIBLE_GATHERING": "explicit"}
    assert unless_configured("gathering", "", environment) == {}


def test_facts_follow_the_environment_first(environment: dict[str, str]) -> None:
    assert unless_configured("gathering", "explicit", environment | {"ANSIBLE_GATHERING": "smart"}) == {}


def test_facts_follow_an_ansible_cfg_of_the_user(environment: dict[str, str]) -> None:
    write_config(environment, "gathering = implicit")
    assert unless_configured("gathering", "explicit", environment) == {}


@pytest.mark.parametrize("line", ["allow_broken_conditionals = false", "allow_broken_conditionals = true"])
def test_an_ansible_cfg_decides_about_broken_conditionals(environment: dict[str, str], line: str) -> None:
    default = {"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "true"}
    assert unless_configured("allow_broken_conditionals", "true", environment) == default
    write_config(environment, line)
    assert unless_configured("allow_broken_conditionals", "true", environment) == {}


def test_a_config_that_cannot_be_parsed_counts_as_empty(environment: dict[str, str]) -> None:
    write_config(environment, "[[[\nno key")
    assert unless_configured("gathering", "explicit", environment) == {"ANSIBLE_GATHERING": "explicit"}


@pytest.fixture
def elsewhere(environment: dict[str, str]) -> dict[str, str]:
    """Give an environment whose HOME is not the one of the passwd file."""
    return environment | {"USER": "root"}


def below(home: str) -> dict[str, str]:
    """Return the variables that keep Ansible's files below a folder."""
    return {"ansible_remote_tmp": f"{home}/.ansible/tmp", "ansible_async_dir": f"{home}/.ansible_async"}


def test_localhost_keeps_its_files_below_a_home_that_the_passwd_file_does_not_know(elsewhere: dict[str, str]) -> None:
    assert home_variables(elsewhere) == below(elsewhere["HOME"])


def test_nothing_is_set_for_a_home_that_is_the_one_of_the_passwd_file(elsewhere: dict[str, str]) -> None:
    assert home_variables(elsewhere | {"HOME": pwd.getpwnam("root").pw_dir}) == {}


def test_a_name_that_nobody_has_is_no_home(elsewhere: dict[str, str]) -> None:
    assert home_variables(elsewhere | {"USER": "nobody-has-this"}) == below(elsewhere["HOME"])


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("ANSIBLE_REMOTE_TEMP", "ansible_remote_tmp"),
        ("ANSIBLE_REMOTE_TMP", "ansible_remote_tmp"),
        ("ANSIBLE_ASYNC_DIR", "ansible_async_dir"),
    ],
)
def test_folders_that_the_environment_names_stay(elsewhere: dict[str, str], variable: str, key: str) -> None:
    assert home_variables(elsewhere | {variable: "/mine"}).keys() == below("").keys() - {key}


def test_folders_that_an_ansible_cfg_names_stay(elsewhere: dict[str, str]) -> None:
    write_config(elsewhere, "remote_tmp = /mine\nasync_dir = /mine")
    assert home_variables(elsewhere) == {}
