import pytest

from rolecall.runner.runs.variables import is_reserved, reserved_among


@pytest.mark.parametrize(
    "name",
    [
        "ansible_remote_tmp",
        "ansible_shell_executable",
        "ansible_python_interpreter",
        "ansible_connection",
        "_ansible_debug",
        "inventory_hostname",
        "inventory_hostname_short",
        "group_names",
        "omit",
        "lxd_become_method",
        "passwordstore",
        "sops_binary",
        "wsl_user",
    ],
)
def test_what_ansible_acts_on_is_reserved(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize(
    "name",
    [
        "connection",
        "environment",
        "port",
        "tags",
        "timeout",
        "size",
        "my_ansible_thing",
        "ansible",
        "groups_wanted",
        "host",
    ],
)
def test_fields_that_do_nothing_as_variables_stay_free(name: str) -> None:
    assert not is_reserved(name)


def test_a_watch_allows_by_name() -> None:
    names = ["ansible_user", "ansible_host", "size"]
    assert reserved_among(names, frozenset({"ansible_user"})) == ["ansible_host"]
