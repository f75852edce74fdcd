"""The log has each write with its request, and reports it."""

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.crashtest.write_log import Write, WriteLog

FOO = ApiResource(GVK("example.com", "v1", "Foo"), "foos", namespaced=True, verbs=frozenset(), subresources=frozenset())
MAPS = "/api/v1/namespaces/ns/configmaps"
STATUS = "/apis/example.com/v1/namespaces/ns/foos/one/status"
CREATION, UPDATE = Write("POST", MAPS, "a"), Write("PUT", f"{MAPS}/a")


def test_request_has_the_name_of_a_created_object() -> None:
    assert CREATION.request == f"POST {MAPS} (a)"
    assert UPDATE.request == f"PUT {MAPS}/a"


def foo(version: str, *finalizers: str) -> RawObject:
    """Return a Foo."""
    metadata = {"name": "one", "namespace": "ns", "uid": "u", "resourceVersion": version, "finalizers": [*finalizers]}
    return {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata}


def wrote(log: WriteLog, version: str, *finalizers: str) -> None:
    """Record a write of the operator."""
    log.record_write((FOO.gvk, ObjectKey("ns", "one")), foo(version, *finalizers))


def test_operator_writes_finalizers_or_status() -> None:
    log = WriteLog(resource=FOO, primary=foo("1"))
    wrote(log, "2", "example.com/finalizer")
    wrote(log, "3", "example.com/finalizer")
    assert [each.request for each in log.writes] == [f"PUT {STATUS.removesuffix('/status')}", f"PUT {STATUS}"]
    assert log.run_changes == 0
    assert log.objects == {}


def test_each_write_is_reported_once_it_is_in_the_log() -> None:
    log, seen = WriteLog(resource=FOO, primary=foo("1")), []
    log.on_write = lambda: seen.append((len(log.writes), log.primary))
    wrote(log, "2")
    wrote(log, "3")
    assert seen == [(1, foo("2")), (2, foo("3"))]
