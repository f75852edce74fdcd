import os
import tempfile
from pathlib import Path

import pytest

from rolecall.runner.config.settings import (
    Settings,
    ansible_operator_settings,
    default_workers,
    resolve_max_concurrent_runs,
)


@pytest.mark.parametrize(("cpus", "workers"), [(1, 1), (2, 2), (4, 4), (128, 4)])
def test_workers_are_the_cpus_up_to_four(cpus: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cpus)))
    assert default_workers() == workers == Settings().workers


def test_grace_period_is_below_kubernetes_default() -> None:
    assert Settings().grace_seconds < 30


def test_ansible_operator_has_ports_paths_and_times_of_the_go_runner() -> None:
    settings = ansible_operator_settings()
    assert (settings.proxy_port, settings.user_metrics_port) == (8888, 5050)
    assert (settings.health_probe_bind_address, settings.metrics_bind_address) == (":6789", ":8443")
    assert settings.work_directory == Path("/tmp/ansible-operator/runner")  # noqa: S108 - a part of the interface
    assert settings.kubeconfig_directory == Path(tempfile.gettempdir())  # TMPDIR, or /tmp
    assert (settings.backoff_min_seconds, settings.backoff_max_seconds) == (0.005, 1000)
    assert (settings.grace_seconds, settings.reconcile_period_seconds) == (30, 36000)
    assert (settings.ready_conditions, Settings().ready_conditions) == (False, True)
    assert (settings.allow_broken_conditionals, Settings().allow_broken_conditionals) == (True, False)


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
