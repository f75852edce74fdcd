import pytest

from rolecall.control.changes import Change, ChangeType
from rolecall.control.work_queue import Cause
from tests.unit.control.samples import POD, make_change, make_object


def test_a_change_says_what_happened_to_which_object() -> None:
    web = make_object()
    assert str(make_change(None, web)) == "Pod default/web added"
    assert str(make_change(web, web)) == "Pod default/web modified"
    assert str(make_change(web, None)) == "Pod default/web deleted"


def test_the_cause_of_a_live_change_has_the_version_of_its_object() -> None:
    change = make_change(make_object(), make_object(resourceVersion="2"))
    assert change.cause("text") == Cause("text", "uid-web", "2")


def test_the_cause_of_a_change_that_a_list_showed_has_no_identity() -> None:
    change = make_change(make_object(), make_object(resourceVersion="2"), live=False)
    assert change.cause("text") == Cause("text")


def test_a_change_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="Kind=Pod without an old and a new entry"):
        _ = Change(ChangeType.ADDED, POD, None, None, {}).key
