import pytest

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.runs.own_writes import OwnWrites, PrimaryCause, SelfTriggers

THING = GVK("test.rolecall.dev", "v1", "Thing")
ONE, OTHER = ObjectKey("default", "one"), ObjectKey("default", "other")


def version(number: int | str, uid: str = "u") -> RawObject:
    """Return an object in a version."""
    return {"metadata": {"uid": uid, "resourceVersion": str(number)}}


@pytest.fixture
def triggers() -> SelfTriggers:
    """Return the self-triggers of a kind whose object ``one`` was run from version 10 and wrote version 15."""
    triggers = SelfTriggers(THING, OwnWrites())
    triggers.run_started(ONE, version(10))
    triggers.own_writes.record_write((THING, ONE), version(15))
    return triggers


@pytest.mark.parametrize(
    ("cause", "wakes"),
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
def test_change_known_to_the_run_does_not_trigger(triggers: SelfTriggers, cause: Cause, *, wakes: bool) -> None:
    assert triggers.is_self_trigger(ONE, cause) is not wakes


def test_write_of_one_object_triggers_another(triggers: SelfTriggers) -> None:
    assert not triggers.is_self_trigger(OTHER, Cause("a dependent", "u", "15"))


def test_own_spec_change_with_requeue_does_not_trigger(triggers: SelfTriggers) -> None:
    own_spec = PrimaryCause("the own write of the spec", "u", "15", changed_spec=True)
    triggers.requeue_requested(ONE)
    assert triggers.is_self_trigger(ONE, own_spec)
    assert not triggers.is_self_trigger(ONE, PrimaryCause("a user's", "u", "16", changed_spec=True))
    triggers.run_started(ONE, version(14))
    assert not triggers.is_self_trigger(ONE, own_spec)


@pytest.mark.parametrize(("found", "wakes"), [("abc", False), ("abd", True), ("9", True)])
def test_versions_without_numbers_are_compared_for_equality(triggers: SelfTriggers, found: str, *, wakes: bool) -> None:
    triggers.run_started(ONE, version("abc"))
    assert triggers.is_self_trigger(ONE, PrimaryCause("modified", "u", found)) is not wakes


def test_number_with_more_digits_is_newer(triggers: SelfTriggers) -> None:
    triggers.run_started(ONE, version(99))
    assert not triggers.is_self_trigger(ONE, PrimaryCause("modified", "u", "100"))


def test_change_of_a_forgotten_object_triggers(triggers: SelfTriggers) -> None:
    triggers.requeue_requested(ONE)
    triggers.forget(ONE)
    triggers.forget(ONE)
    for number in ("9", "10", "15"):
        assert not triggers.is_self_trigger(ONE, PrimaryCause("added", "u", number))


def test_only_foreign_deletion_triggers(triggers: SelfTriggers) -> None:
    triggers.own_writes.record_removal((THING, ONE), "u")
    assert triggers.is_self_trigger(ONE, Cause("deleted", "u", "200", is_removal=True))
    assert not triggers.is_self_trigger(
        ONE, Cause("deleted", "made anew and deleted by a user", "201", is_removal=True)
    )
    assert not triggers.is_self_trigger(ObjectKey("default", "other"), Cause("deleted", "u", "200", is_removal=True))
    assert not triggers.is_self_trigger(ONE, Cause("modified before that", "u", "150"))


def test_deletion_of_the_primary_triggers(triggers: SelfTriggers) -> None:
    triggers.own_writes.record_removal((THING, ONE), "u")
    assert not triggers.is_self_trigger(ONE, PrimaryCause("deleted", "u", "200", is_removal=True))
