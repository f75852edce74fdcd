"""Waits of a planned run: short, within the same time limit."""

from types import SimpleNamespace
from typing import Any

import pytest

from rolecall.workbench.planned.tasks import POLL_SECONDS, shorten_arguments, shorten_waits


def shortened(**own: Any) -> SimpleNamespace:
    """Return a task with shortened waits."""
    task = SimpleNamespace(**{"poll": 15, "until": [], "retries": None, "delay": 5, **own})
    shorten_waits(task)
    return task


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({"until": ["x"], "retries": 10, "delay": 6}, 60), ({"until": ["x"]}, 15), ({"retries": 2, "delay": 1}, 2)],
)
def test_until_retries_more_often_within_the_same_time(given: dict[str, Any], seconds: float) -> None:
    task = shortened(**given)
    assert task.delay == POLL_SECONDS
    assert task.retries * task.delay == pytest.approx(seconds)


@pytest.mark.parametrize("given", [{}, {"until": ["x"], "retries": 3, "delay": 0}], ids=["no retries", "short delay"])
def test_other_task_is_unchanged(given: dict[str, Any]) -> None:
    task = shortened(**given)
    assert (task.retries, task.delay) == (given.get("retries"), given.get("delay", 5))


@pytest.mark.parametrize(
    ("name", "arguments", "changes"),
    [
        ("kubernetes.core.k8s", {"wait": True, "wait_timeout": 90}, {"wait_sleep": 1}),
        ("kubernetes.core.k8s", {"kind": "Pod"}, {}),
        ("kubernetes.core.helm", {"wait": True}, {}),
        ("ansible.builtin.wait_for", {"timeout": 30}, {"timeout": 0, "delay": 0}),
        ("ansible.builtin.wait_for", {"path": "/x", "timeout": 3}, {"delay": 0}),
    ],
)
def test_modules_poll_every_second_and_let_no_time_pass(
    name: str, arguments: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert shorten_arguments(name, arguments) == arguments | changes
