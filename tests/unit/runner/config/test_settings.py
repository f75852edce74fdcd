import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rolecall.kube.references import GVK
from rolecall.runner.config.ansible_config import check_path, directory_variables, roles_path
from rolecall.runner.config.settings import (
    Settings,
    ansible_verbosity,
    default_workers,
    max_concurrent_reconciles,
    resolve_max_concurrent_runs,
)
from tests.support.ansible_settings import environment, write_config

__all__ = ["environment"]


@pytest.mark.parametrize(("cpus", "workers"), [(1, 1), (2, 2), (4, 4), (128, 4)])
def test_workers_are_the_cpus_up_to_four(cpus: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cpus)))
    assert default_workers() == workers == Settings().workers


def test_grace_period_is_below_kubernetes_default() -> None:
    assert Settings().grace_seconds < 30


def test_rolecall_has_no_fixed_port_and_serves_nothing_by_default() -> None:
    settings = Settings()
    assert (settings.proxy_port, settings.user_metrics_port) == (0, 0)
    assert (settings.health_probe_bind_address, settings.metrics_bind_address) == ("0", "0")
    assert settings.work_directory is None


@pytest.mark.parametrize(
    ("given", "workers", "limit"),
    [(0, [], 4), (0, [1, 1], 4), (0, [2, 10, 3], 10), (3, [10], 3), (50, [1], 50)],
)
def test_concurrent_runs_are_bounded_by_the_flag_or_the_cpus(
    given: int, workers: list[int], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert resolve_max_concurrent_runs(Settings(max_concurrent_runs=given), workers) == limit


MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")
DASHED = GVK("my-group.io", "v1", "Thing")
SECRET = GVK("", "v1", "Secret")


@pytest.mark.parametrize(
    ("gvk", "name"),
    [(MEMCACHED, "MEMCACHED_CACHE_EXAMPLE_COM"), (SECRET, "SECRET_"), (DASHED, "THING_MY-GROUP_IO")],
)
def test_variable_is_named_after_kind_and_group(gvk: GVK, name: str) -> None:
    assert max_concurrent_reconciles(gvk, {f"MAX_CONCURRENT_RECONCILES_{name}": "3"}) == 3
    assert ansible_verbosity(gvk, {f"ANSIBLE_VERBOSITY_{name}": "4"}) == 4


@pytest.mark.parametrize("text", ["1", "12", "+2"])
def test_workers_are_a_positive_integer(text: str) -> None:
    assert max_concurrent_reconciles(SECRET, {"MAX_CONCURRENT_RECONCILES_SECRET_": text}) == int(text)


@pytest.mark.parametrize("text", ["0", "-1", "", "two", "1.5", " 1", "1_0"])
def test_invalid_workers_are_logged_and_ignored(text: str) -> None:
    with capture_logs() as lines:
        assert max_concurrent_reconciles(SECRET, {"MAX_CONCURRENT_RECONCILES_SECRET_": text}) is None
    assert [(line["log_level"], line["envVar"]) for line in lines] == [("info", "MAX_CONCURRENT_RECONCILES_SECRET_")]


@pytest.mark.parametrize(("text", "verbosity"), [("0", 0), ("7", 7), ("8", None), ("-1", None), ("loud", None)])
def test_verbosity_is_an_integer_from_0_to_7(text: str, verbosity: int | None) -> None:
    assert ansible_verbosity(SECRET, {"ANSIBLE_VERBOSITY_SECRET_": text}) == verbosity


def test_without_variables_the_flags_apply() -> None:
    with capture_logs() as lines:
        assert (max_concurrent_reconciles(SECRET, {}), ansible_verbosity(SECRET, {})) == (None, None)
    assert lines == []


def test_deprecated_name_of_workers_applies_without_the_new_one_and_is_logged() -> None:
    with capture_logs() as lines:
        assert max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2"}) == 2
    assert [line["replacedBy"] for line in lines] == ["MAX_CONCURRENT_RECONCILES_SECRET_"]
    assert max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2", "MAX_CONCURRENT_RECONCILES_SECRET_": "3"}) == 3
    assert (
        max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2", "MAX_CONCURRENT_RECONCILES_SECRET_": "many"}) is None
    )


@pytest.mark.parametrize(
    ("given", "config", "expected"),
    [
        ({}, "", "~/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles"),
        ({"ANSIBLE_HOME": "/a"}, "", "/a/roles:/usr/share/ansible/roles:/etc/ansible/roles"),
        ({"ANSIBLE_ROLES_PATH": "/mine:shared:~/others"}, "/config", "/mine:/project/shared:~/others"),
        ({}, "/config:own ; a comment", "/config:HOME/own"),
    ],
    ids=["default", "home of Ansible", "environment before ansible.cfg", "relative to ansible.cfg"],
)
def test_roles_of_the_project_are_searched_after_the_configured_ones(
    environment: dict[str, str], given: dict[str, str], config: str, expected: str
) -> None:
    if config:
        write_config(environment, f"roles_path = {config}")
    found = roles_path(Path("/project"), environment | given)
    assert found == f"{expected.replace('HOME', environment['HOME'])}:/project/roles"


def test_ansible_cfg_in_the_environment_takes_precedence(environment: dict[str, str], tmp_path: Path) -> None:
    write_config(environment, "roles_path = /users")
    (tmp_path / "named").mkdir()
    (tmp_path / "named/ansible.cfg").write_text("[defaults]\nroles_path = /named\n")
    environment["ANSIBLE_CONFIG"] = str(tmp_path / "named")
    assert roles_path(Path("/project"), environment) == "/named:/project/roles"


def test_roles_of_the_project_are_listed_once(environment: dict[str, str]) -> None:
    given = {"ANSIBLE_ROLES_PATH": "/project/roles:/mine"}
    assert roles_path(Path("/project"), environment | given) == "/project/roles:/mine"


DIRECTORIES = (Path("/work/tmp"), Path("/work/async"))


def test_localhost_keeps_the_files_of_ansible_in_the_given_directories(environment: dict[str, str]) -> None:
    expected = {"ansible_remote_tmp": "/work/tmp", "ansible_async_dir": "/work/async"}
    assert directory_variables(environment, *DIRECTORIES) == expected
    assert directory_variables(environment | {"HOME": "/"}, *DIRECTORIES) == expected


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("ANSIBLE_REMOTE_TEMP", "ansible_remote_tmp"),
        ("ANSIBLE_REMOTE_TMP", "ansible_remote_tmp"),
        ("ANSIBLE_ASYNC_DIR", "ansible_async_dir"),
    ],
)
def test_directories_of_the_user_stay(environment: dict[str, str], variable: str, key: str) -> None:
    names = {"ansible_remote_tmp", "ansible_async_dir"}
    assert directory_variables(environment | {variable: "/mine"}, *DIRECTORIES).keys() == names - {key}
    write_config(environment, "remote_tmp = /mine\nasync_dir = /mine")
    assert directory_variables(environment, *DIRECTORIES) == {}


@pytest.mark.parametrize("path", ["/work", "/a work", "/größe/e\u0301/~me/@1+2=3", "/%41"])
def test_path_without_syntax_is_accepted(path: str) -> None:
    check_path(Path(path))


@pytest.mark.parametrize("character", [*":,;&|<>()[]{}*?!#$^`'\"\\\n\t", "  ", "{{ x }}"])
def test_path_that_cannot_be_quoted_everywhere_is_rejected(character: str) -> None:
    with pytest.raises(ValueError, match="choose another directory"):
        check_path(Path(f"/a{character}b"))
