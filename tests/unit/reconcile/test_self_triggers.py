import pytest

from rolecall.controller.work_queue import Cause
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.reconcile.own_writes import OwnWrites
from rolecall.reconcile.self_triggers import PrimaryCause, SelfTriggers

THING = GVK("test.rolecall.dev", "v1", "Thing")
ONE, OTHER = ObjectKey("default", "one"), ObjectKey("default", "other")


def version(number: int | str, uid: str = "u") -> RawObject:
    """Return an object in a version."""
    return {"metadata": {"uid": uid, "resourceVersion": str(number)}}


@pytest.fixture
def news() -> SelfTriggers:
    """Give the news of a kind whose object ``one`` was run from version 10 and wrote version 15."""
    news = SelfTriggers(THING, OwnWrites())
    news.started_from(ONE, version(10))
    news.own_writes.note((THING, ONE), version(15))
    return news


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause("requeue"), True),
        (PrimaryCause("older", "u", "9"), False),
        (PrimaryCause("the one it started from", "u", "10"), False),
        (PrimaryCause("a user's before the own write", "u", "12"), True),
        (PrimaryCause("the own write", "u", "15"), False),
        (PrimaryCause("the own write of the spec", "u", "15", changed_spec=True), True),
        (PrimaryCause("a user's after it", "u", "16"), True),
        (PrimaryCause("another object of that name", "v", "9"), True),
        (Cause("an old dependent", "d", "9"), True),
        (Cause("a dependent that the run wrote", "u", "15"), False),
    ],
    ids=lambda value: value.text if isinstance(value, Cause) else "",
)
def test_what_a_run_knows_already_is_no_news(news: SelfTriggers, cause: Cause, *, expected: bool) -> None:
    assert news.is_news(ONE, cause) is expected


def test_what_one_objects_run_wrote_is_news_to_another(news: SelfTriggers) -> None:
    assert news.is_news(OTHER, Cause("a dependent", "u", "15"))


def test_a_run_that_named_its_time_is_not_followed_by_another_for_its_own_spec(news: SelfTriggers) -> None:
    own_spec = PrimaryCause("the own write of the spec", "u", "15", changed_spec=True)
    news.requested_requeue(ONE)
    assert not news.is_news(ONE, own_spec)
    assert news.is_news(ONE, PrimaryCause("a user's", "u", "16", changed_spec=True))
    news.started_from(ONE, version(14))
    assert news.is_news(ONE, own_spec)


@pytest.mark.parametrize(("found", "expected"), [("abc", False), ("abd", True), ("9", True)])
def test_versions_that_are_no_numbers_are_compared_for_equality(
    news: SelfTriggers, found: str, *, expected: bool
) -> None:
    news.started_from(ONE, version("abc"))
    assert news.is_news(ONE, PrimaryCause("modified", "u", found)) is expected


def test_a_number_with_more_digits_is_newer(news: SelfTriggers) -> None:
    news.started_from(ONE, version(99))
    assert news.is_news(ONE, PrimaryCause("modified", "u", "100"))


def test_an_object_that_was_forgotten_is_all_news(news: SelfTriggers) -> None:
    news.requested_requeue(ONE)
    news.forget(ONE)
    news.forget(ONE)
    for number in ("9", "10", "15"):
        assert news.is_news(ONE, PrimaryCause("added", "u", number))


def test_the_end_of_an_object_that_the_run_removed_is_no_news_and_anybody_elses_is(news: SelfTriggers) -> None:
    news.own_writes.note_removal((THING, ONE), "u")
    assert not news.is_news(ONE, Cause("deleted", "u", "200", is_removal=True))
    assert news.is_news(ONE, Cause("deleted", "made anew and deleted by a user", "201", is_removal=True))
    assert news.is_news(ObjectKey("default", "other"), Cause("deleted", "u", "200", is_removal=True))
    assert news.is_news(ONE, Cause("modified before that", "u", "150"))


def test_the_end_of_the_primary_itself_is_news_whoever_removed_it(news: SelfTriggers) -> None:
    news.own_writes.note_removal((THING, ONE), "u")
    assert news.is_news(ONE, PrimaryCause("deleted", "u", "200", is_removal=True))
