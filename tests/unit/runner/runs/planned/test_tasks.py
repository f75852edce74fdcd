"""Waits of a planned run: short, within the same time limit."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rolecall.runner.runs.planned.tasks import POLL_SECONDS, QuickTime, hurried, hurry_task


def task(**own: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"poll": 15, "until": [], "retries": None, "delay": 5, **own})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({"until": ["x"], "retries": 10, "delay": 6}, 60), ({"until": ["x"]}, 15), ({"retries": 2, "delay": 1}, 2)],
)
def test_until_tries_more_often_within_the_same_time(given: dict[str, Any], seconds: float) -> None:
    found = task(**given)
    hurry_task(found)
    assert found.delay == POLL_SECONDS
    assert found.retries * found.delay == pytest.approx(seconds)


def test_a_task_that_is_not_repeated_stays_as_it_is() -> None:
    found = task()
    hurry_task(found)
    assert (found.retries, found.delay) == (None, 5)


def test_a_short_delay_stays_as_it_is() -> None:
    found = task(until=["x"], retries=3, delay=0)
    hurry_task(found)
    assert (found.retries, found.delay) == (3, 0)


def test_sleeps_are_short() -> None:
    start = time.monotonic()
    QuickTime().sleep(60)
    assert time.monotonic() - start < 5
    assert QuickTime().monotonic() >= start


def test_kubernetes_modules_that_wait_ask_every_second() -> None:
    assert hurried("kubernetes.core.k8s", {"wait": True, "wait_timeout": 90}) == {
        "wait": True,
        "wait_timeout": 90,
        "wait_sleep": 1,
    }
    assert hurried("kubernetes.core.k8s", {"kind": "Pod"}) == {"kind": "Pod"}
    assert hurried("kubernetes.core.helm", {"wait": True}) == {"wait": True}


def test_wait_for_lets_no_time_pass_but_waits_for_a_file() -> None:
    assert hurried("ansible.builtin.wait_for", {"timeout": 30}) == {"timeout": 0, "delay": 0}
    assert hurried("ansible.builtin.wait_for", {"path": "/x", "timeout": 3}) == {"path": "/x", "timeout": 3, "delay": 0}
