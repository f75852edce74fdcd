from dataclasses import replace

import pytest

from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.store import Change, ChangeType
from rolecall.runner.controller.work_queue import Cause
from tests.unit.runner.controller.samples import POD, make_change, make_object


def test_a_change_says_what_happened_to_which_object() -> None:
    web = make_object()
    assert str(make_change(None, web)) == "Pod default/web added"
    assert str(make_change(web, web)) == "Pod default/web modified"
    assert str(make_change(web, None)) == "Pod default/web deleted"


def test_the_cause_of_a_live_change_has_the_version_of_its_object() -> None:
    change = make_change(make_object(), make_object(resourceVersion="2"))
    assert change.cause("text") == Cause("text", "uid-web", "2")


def test_the_cause_of_a_change_that_a_list_showed_has_no_identity() -> None:
    change = make_change(make_object(), make_object(resourceVersion="2"), from_watch=False)
    assert change.cause("text") == Cause("text")


def test_the_cause_of_what_the_first_list_shows_is_not_urgent() -> None:
    change = replace(make_change(None, make_object(), from_watch=False), in_initial_list=True)
    assert change.cause("text") == Cause("text", priority=Priority.LOW)


def test_a_change_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="Kind=Pod without entries, expected an old or a new one"):
        _ = Change(ChangeType.ADDED, POD, None, None, {}).key


def test_a_reason_names_the_fields_that_changed() -> None:
    web = make_object(status={"phase": "Pending"})
    running = make_object(resourceVersion="2", status={"phase": "Running"})
    assert make_change(None, web).reason == "Pod default/web created"
    assert make_change(web, running).reason == "Pod default/web: status.phase"
    assert make_change(web, make_object(resourceVersion="2", status={"phase": "Pending"})).reason == (
        "Pod default/web: updated without a visible change"
    )
    assert make_change(web, None).reason == "Pod default/web deleted"


def test_what_was_there_before_the_operator_was_found_not_created() -> None:
    entry = make_change(None, make_object()).new
    assert Change(ChangeType.ADDED, POD, None, entry, {}, from_watch=False, in_initial_list=True).reason == (
        "Pod default/web found at startup"
    )
