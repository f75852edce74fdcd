from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.runs.own_writes import KEEP_SECONDS, OwnWrites
from tests.unit.manual_clock import ManualClock

WIDGET = GVK("example.com", "v1", "Widget")
ONE, OTHER = (WIDGET, ObjectKey("default", "one")), (WIDGET, ObjectKey("default", "other"))


def version(number: int, uid: str = "u") -> RawObject:
    """Return an object in a version."""
    return {"metadata": {"uid": uid, "resourceVersion": str(number)}}


def test_only_recorded_versions_are_known() -> None:
    writes = OwnWrites()
    writes.record_write(ONE, version(5))
    assert writes.contains(ONE, "u", "5")
    assert not writes.contains(ONE, "u", "4")
    assert not writes.contains(ONE, "u", "6")
    assert not writes.contains(ONE, "another", "5")


def test_object_without_identity_is_not_recorded() -> None:
    writes = OwnWrites()
    writes.record_write(ONE, {})
    writes.record_write(ONE, {"metadata": {"uid": "u"}})
    writes.record_write(ONE, {"metadata": {"resourceVersion": "1"}})
    assert not writes.contains(ONE, "", "")
    assert not writes.contains(ONE, "u", "")
    assert not writes.contains(ONE, "", "1")


def test_version_is_dropped_by_a_write_after_ten_minutes() -> None:
    clock = ManualClock()
    writes = OwnWrites(now=clock.monotonic)
    writes.record_write(ONE, version(1))
    writes.record_write(OTHER, version(1))
    clock.advance(KEEP_SECONDS)
    writes.record_write(ONE, version(2))
    assert writes.contains(ONE, "u", "1")
    clock.advance(1)
    writes.record_write(ONE, version(3))
    assert not writes.contains(ONE, "u", "1")
    assert writes.contains(ONE, "u", "2")
    assert writes.contains(OTHER, "u", "1")


def test_deleted_primary_is_forgotten() -> None:
    writes = OwnWrites()
    writes.record_write(ONE, version(5))
    writes.record_write(OTHER, version(5))
    writes.forget(ONE)
    writes.forget(ONE)
    assert not writes.contains(ONE, "u", "5")
    assert writes.contains(OTHER, "u", "5")
