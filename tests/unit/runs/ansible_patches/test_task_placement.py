"""A task that is given up inside is begun again in a worker, and does nothing twice."""

from contextlib import suppress

import pytest

from rolecall.runs.ansible_patches.task_placement import ModuleResult, NeedsWorker, TaskPlacement

FIRST, SECOND = ModuleResult(0, b"first", b""), ModuleResult(3, b"", b"second")


def given_up(placement: TaskPlacement, *modules: tuple[str, ModuleResult]) -> None:
    """Run a task inside that is given up after these modules."""
    with suppress(NeedsWorker), placement.inside():
        for name, outcome in modules:
            placement.note(name, outcome)
        placement.give_up("it uses a filter of the role")


def test_a_worker_is_required_inside_only() -> None:
    placement = TaskPlacement()
    placement.require_worker("it is no worker's business")
    with placement.inside(), pytest.raises(NeedsWorker):
        placement.require_worker("it is a loop")


def test_a_worker_finds_the_modules_that_have_run_inside_in_their_order() -> None:
    placement = TaskPlacement()
    given_up(placement, ("stat", FIRST), ("copy", SECOND))
    with placement.in_worker():
        assert placement.done_before("stat") == FIRST
        assert placement.done_before("stat") is None
        assert placement.done_before("copy") == SECOND
        assert placement.done_before("copy") is None


def test_a_task_that_begins_in_a_worker_finds_nothing_of_one_that_ended_inside() -> None:
    placement = TaskPlacement()
    with placement.inside():
        placement.note("stat", FIRST)
    with placement.in_worker():
        assert placement.done_before("stat") is None


def test_the_next_task_finds_nothing_of_the_last_one() -> None:
    placement = TaskPlacement()
    given_up(placement, ("stat", FIRST))
    with placement.in_worker():
        pass
    assert placement.done_before("stat") is None
    given_up(placement, ("stat", FIRST))
    with placement.inside():
        assert placement.done_before("stat") is None
    assert placement.done_before("stat") is None


def test_what_a_worker_does_is_not_kept() -> None:
    placement = TaskPlacement()
    placement.note("stat", FIRST)
    assert placement.done_before("stat") is None
