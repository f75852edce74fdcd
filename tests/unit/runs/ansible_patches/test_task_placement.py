"""A task that is given up inside is begun again in a worker, and does nothing twice."""

from contextlib import suppress

import pytest

from rolecall.runs.ansible_patches.task_placement import NeedsWorker, Outcome, Place

FIRST, SECOND = Outcome(0, b"first", b""), Outcome(3, b"", b"second")


def given_up(place: Place, *modules: tuple[str, Outcome]) -> None:
    """Run a task inside that is given up after these modules."""
    with suppress(NeedsWorker), place.inside():
        for name, outcome in modules:
            place.note(name, outcome)
        place.give_up("it uses a filter of the role")


def test_a_worker_is_required_inside_only() -> None:
    place = Place()
    place.require_worker("it is no worker's business")
    with place.inside(), pytest.raises(NeedsWorker):
        place.require_worker("it is a loop")


def test_a_worker_finds_the_modules_that_have_run_inside_in_their_order() -> None:
    place = Place()
    given_up(place, ("stat", FIRST), ("copy", SECOND))
    with place.in_worker():
        assert place.done_before("stat") == FIRST
        assert place.done_before("stat") is None
        assert place.done_before("copy") == SECOND
        assert place.done_before("copy") is None


def test_a_task_that_begins_in_a_worker_finds_nothing_of_one_that_ended_inside() -> None:
    place = Place()
    with place.inside():
        place.note("stat", FIRST)
    with place.in_worker():
        assert place.done_before("stat") is None


def test_the_next_task_finds_nothing_of_the_last_one() -> None:
    place = Place()
    given_up(place, ("stat", FIRST))
    with place.in_worker():
        pass
    assert place.done_before("stat") is None
    given_up(place, ("stat", FIRST))
    with place.inside():
        assert place.done_before("stat") is None
    assert place.done_before("stat") is None


def test_what_a_worker_does_is_not_kept() -> None:
    place = Place()
    place.note("stat", FIRST)
    assert place.done_before("stat") is None
