"""A task that turns out to need a worker restarts there, and runs no module twice."""

from contextlib import suppress

import pytest

from rolecall.runner.warm.playbook_process import ModuleResult, NeedsWorker, TaskPlacement

FIRST, SECOND = ModuleResult(0, b"first", b""), ModuleResult(3, b"", b"second")


def abandoned(placement: TaskPlacement, *modules: tuple[str, ModuleResult]) -> None:
    """Run a task in the process of ansible-playbook that needs a worker after these modules."""
    with suppress(NeedsWorker), placement.in_process():
        for name, result in modules:
            placement.record_result(name, result)
        raise NeedsWorker("it uses a filter of the role")


def test_task_requires_a_worker_only_outside_one() -> None:
    placement = TaskPlacement()
    placement.require_worker("a reason")
    with placement.in_process(), pytest.raises(NeedsWorker):
        placement.require_worker("it is a loop")


def test_worker_finds_earlier_module_results_in_order() -> None:
    placement = TaskPlacement()
    abandoned(placement, ("stat", FIRST), ("copy", SECOND))
    with placement.in_worker():
        assert placement.recorded_result("stat") == FIRST
        assert placement.recorded_result("stat") is None
        assert placement.recorded_result("copy") == SECOND
        assert placement.recorded_result("copy") is None


def test_worker_finds_no_results_of_an_earlier_task() -> None:
    placement = TaskPlacement()
    with placement.in_process():
        placement.record_result("stat", FIRST)
    with placement.in_worker():
        assert placement.recorded_result("stat") is None


def test_next_task_finds_no_results_of_a_restarted_task() -> None:
    placement = TaskPlacement()
    abandoned(placement, ("stat", FIRST))
    with placement.in_worker():
        pass
    assert placement.recorded_result("stat") is None
    abandoned(placement, ("stat", FIRST))
    with placement.in_process():
        assert placement.recorded_result("stat") is None
    assert placement.recorded_result("stat") is None


def test_results_in_a_worker_are_not_recorded() -> None:
    placement = TaskPlacement()
    placement.record_result("stat", FIRST)
    assert placement.recorded_result("stat") is None
