"""A crash point is found again although the order of writes and random names differ between runs."""

from dataclasses import dataclass, field

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.crashtest.write_log import CrashPoint, Liveness, Write, WriteLog

FOO = ApiResource(GVK("example.com", "v1", "Foo"), "foos", namespaced=True, verbs=frozenset(), subresources=frozenset())
MAPS = "/api/v1/namespaces/ns/configmaps"
STATUS = "/apis/example.com/v1/namespaces/ns/foos/one/status"
CREATION, UPDATE = Write("POST", MAPS, "a"), Write("PUT", f"{MAPS}/a")


def test_request_has_the_name_of_a_created_object() -> None:
    assert CREATION.request == f"POST {MAPS} (a)"
    assert UPDATE.request == f"PUT {MAPS}/a"


def test_crash_point_counts_equal_requests() -> None:
    point = CrashPoint.after(3, [UPDATE, CREATION, UPDATE], [CREATION, UPDATE, UPDATE])
    assert point.occurrence == 2
    assert point.is_like(UPDATE)
    assert not point.is_like(CREATION)


def test_crash_point_after_a_write_of_a_random_name_counts_its_resource() -> None:
    first, second = [Write("POST", MAPS, "x7k2p"), UPDATE], [Write("POST", MAPS, "b3m4q"), UPDATE]
    point = CrashPoint.after(1, first, second)
    assert point.is_like(Write("POST", MAPS, "any"))
    assert not point.is_like(Write("POST", "/api/v1/namespaces/other/configmaps", "any"))
    assert not point.is_like(UPDATE)


def test_crash_point_ignores_another_write_of_the_second_run() -> None:
    assert (
        CrashPoint.after(1, [CREATION], [UPDATE])
        == CrashPoint.after(1, [CREATION], [])
        == CrashPoint(CREATION, CREATION, 1)
    )


@dataclass
class Log:
    """A log of the operator's writes for one Foo, and how often it stopped the operator."""

    log: WriteLog
    stops: list[str] = field(default_factory=list)

    def wrote(self, version: str, *finalizers: str) -> None:
        """Record a write of the operator."""
        self.log.record_write((FOO.gvk, ObjectKey("ns", "one")), foo(version, *finalizers))


def foo(version: str, *finalizers: str) -> RawObject:
    """Return a Foo."""
    metadata = {"name": "one", "namespace": "ns", "uid": "u", "resourceVersion": version, "finalizers": [*finalizers]}
    return {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata}


def log_of(crash_point: CrashPoint | None = None) -> Log:
    """Return an empty log."""
    log = Log(WriteLog(liveness=Liveness(), resource=FOO, primary=foo("1"), crash_point=crash_point))
    log.log.stop = lambda: log.stops.append("stopped")
    return log


def test_operator_writes_finalizers_or_status() -> None:
    log = log_of()
    log.wrote("2", "example.com/finalizer")
    log.wrote("3", "example.com/finalizer")
    assert [each.request for each in log.log.writes] == [f"PUT {STATUS.removesuffix('/status')}", f"PUT {STATUS}"]
    assert log.log.run_changes == 0
    assert log.log.objects == {}


def test_operator_is_dead_after_the_write_of_the_crash_point() -> None:
    status = Write("PUT", STATUS)
    log = log_of(CrashPoint(status, status, 2))
    log.wrote("2")
    assert log.log.liveness.is_alive
    log.wrote("3")
    assert not log.log.liveness.is_alive
    log.wrote("4")  # was sent before the crash
    assert len(log.log.writes) == 2
    assert log.stops == ["stopped"]
