import gzip
import itertools
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from rolecall.kube.bodies import MAX_INSPECTED_BYTES
from rolecall.kube.client import Client
from rolecall.kube.errors import ApiError, from_status
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy import forward
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.proxy.sessions import PendingRead, Read
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import CONFIG_MAP, CONFIG_MAPS, REFERENCE, Run, until

CM = f"{CONFIG_MAPS}/cm"


@dataclass
class RecordingObserver:
    """Records reads, the number of requests that the API server had received at that time, and responses."""

    api_server: ApiServer
    needs_keys: bool = False
    reads: list[Read] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    responses: list[tuple[int, Any, frozenset[ObjectKey] | None]] = field(default_factory=list)

    def register(self, read: Read) -> PendingRead | None:
        """Record a read."""
        self.reads.append(read)
        self.received.append(len(self.api_server.received))
        return self

    def record_response(self, status: int, content: Any, keys: frozenset[ObjectKey] | None) -> None:
        """Record a response."""
        self.responses.append((status, content, keys))


@pytest.fixture
def observer(api_server: ApiServer) -> RecordingObserver:
    return RecordingObserver(api_server)


@pytest.fixture
async def reader(start_run: Callable[..., Run], observer: RecordingObserver) -> Run:
    return start_run(observes_reads=True, register=observer.register)


async def test_read_is_registered_before_it_is_sent(
    reader: Run, observer: RecordingObserver, api_server: ApiServer
) -> None:
    api_server.add(CM, name="cm", namespace="ns")
    await reader.send("GET", CM)
    assert observer.received == [0]
    [read] = observer.reads
    assert (read.verb, read.key, read.resource.gvk.kind) == ("get", ObjectKey("ns", "cm"), "ConfigMap")
    await until(lambda: bool(observer.responses))
    [(status, content, _)] = observer.responses
    assert (status, content["metadata"]["name"]) == (200, "cm")


@pytest.mark.parametrize("needs_keys", [False, True])
async def test_list_is_recorded_with_selector_version_and_requested_keys(
    reader: Run, observer: RecordingObserver, api_server: ApiServer, *, needs_keys: bool
) -> None:
    observer.needs_keys = needs_keys
    api_server.add(CM, name="cm", namespace="ns")
    await reader.send("GET", f"{CONFIG_MAPS}?labelSelector=app%3Dweb")
    await until(lambda: bool(observer.responses))
    [read] = observer.reads
    assert (read.verb, read.key, read.label_selector) == ("list", ObjectKey("ns", ""), "app=web")
    [(_, content, keys)] = observer.responses
    assert content["metadata"]["resourceVersion"] == "101"
    assert keys == (frozenset({ObjectKey("ns", "cm")}) if needs_keys else None)


async def test_watch_is_registered_with_its_start(
    reader: Run, observer: RecordingObserver, api_server: ApiServer
) -> None:
    await api_server.watch_events.put(b"")
    await reader.send("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion=7&fieldSelector=metadata.name%3Dcm")
    [read] = observer.reads
    assert (read.verb, read.key, read.start) == ("watch", ObjectKey("ns", "cm"), "7")


async def test_interrupted_read_is_recorded_without_status(
    reader: Run, observer: RecordingObserver, api_server: ApiServer
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    api_server.handlers["GET", CM] = cut
    assert (await reader.send("GET", CM)).status >= 500
    await until(lambda: bool(observer.responses))
    assert observer.responses == [(0, None, None)]


@pytest.mark.parametrize(("target", "status"), [(CM, 404), (f"{CM}/status", 0), (f"{CM}/scale", 0)])
async def test_missing_subresource_is_no_missing_object(
    reader: Run, observer: RecordingObserver, api_server: ApiServer, target: str, status: int
) -> None:
    """For a subresource that a kind doesn't have, the API server says that the object wasn't found."""

    async def missing(_request: web.Request) -> web.StreamResponse:
        details = {"name": "cm", "kind": "configmaps"}
        return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404, "details": details}, status=404)

    api_server.handlers["GET", target] = missing
    assert (await reader.send("GET", target)).status == 404
    await until(lambda: bool(observer.responses))
    assert [each[0] for each in observer.responses] == [status]


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_read_whose_kind_is_not_discovered_at_once_is_followed(
    reader: Run, observer: RecordingObserver, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    discover, attempts = Client.resource_for_path, itertools.count(1)

    async def discover_at_the_second_attempt(client: Client, group: str, version: str, plural: str) -> object:
        if next(attempts) > 1:
            return await discover(client, group, version, plural)
        if status == 404:  # of a gateway
            return None
        raise ApiError(status, "", "not now")

    monkeypatch.setattr(Client, "resource_for_path", discover_at_the_second_attempt)
    api_server.add(CM, name="cm", namespace="ns")
    assert (await reader.send("GET", CM)).status == 200
    assert [read.key.name for read in observer.reads] == ["cm"]


@pytest.mark.parametrize(("status", "expected"), [(503, 503), (403, 200)])
async def test_read_that_cannot_be_followed_for_now_fails(
    reader: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, status: int, expected: int
) -> None:
    """Nothing would start another run after a change. An account that may never discover gets its response."""

    async def discover(*_: object) -> None:
        raise from_status(status, {"kind": "Status", "message": "no"})

    monkeypatch.setattr(forward, "DISCOVERY_RETRY_SECONDS", ())
    monkeypatch.setattr(Client, "resource_for_path", discover)
    api_server.add(CM, name="cm", namespace="ns")
    assert (await reader.send("GET", CM)).status == expected


_STORED = {"metadata": {"name": "x", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, _STORED),
        (200, {"kind": "ThingList", "metadata": {"resourceVersion": "7"}, "items": []}),
        (200, {"kind": "ExternalMetricValueList", "metadata": {}, "items": [{"value": "5"}]}),
        (404, {"kind": "Status", "details": {"name": "x"}}),
        (404, {"kind": "Status", "details": {}}),
        (403, {"kind": "Status"}),
    ],
)
async def test_object_of_a_kind_that_discovery_does_not_list_is_not_returned(
    reader: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, status: int, content: dict[str, Any]
) -> None:
    """A gateway may hide the kind from discovery only: then nothing would tell of a change."""

    async def respond(_: web.Request) -> web.Response:
        return web.json_response(content, status=status)

    target = "/apis/unknown.example.com/v1/namespaces/ns/things/x"
    monkeypatch.setattr(forward, "DISCOVERY_RETRY_SECONDS", ())
    api_server.handlers["GET", target] = respond
    response = await reader.send("GET", target)
    if content.get("details") or "resourceVersion" in content.get("metadata", {}):
        assert response.status == 503
        assert "no such kind in unknown.example.com/v1" in response.json()["message"]
    else:
        assert (response.status, response.json()) == (status, content)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/version"),
        ("GET", "/api/v1"),
        ("GET", "/api/v1/namespaces/ns/pods/p/log"),
        ("GET", "/api/v1/namespaces/ns/unknowns/x"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", CONFIG_MAPS),
        ("DELETE", CM),
    ],
)
async def test_other_requests_are_not_registered(
    reader: Run, observer: RecordingObserver, method: str, target: str
) -> None:
    await reader.send(method, target, json={"metadata": {"name": "x"}} if method == "POST" else None)
    assert observer.reads == []


async def test_read_that_nothing_observes_needs_no_discovery(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def discover(*_: object) -> None:
        raise LookupError("a read needed discovery")

    monkeypatch.setattr(Client, "resource_for_path", discover)
    api_server.add(CM, name="cm", namespace="ns")
    assert [(await run.send("GET", target)).status for target in (CM, CONFIG_MAPS)] == [200, 200]


@pytest.mark.parametrize("path", [f"{CONFIG_MAPS}/old", CONFIG_MAPS])
async def test_dependent_kind_in_read_is_reported_once(run: Run, api_server: ApiServer, path: str) -> None:
    api_server.add(f"{CONFIG_MAPS}/old", ownerReferences=[REFERENCE])
    api_server.add(f"{CONFIG_MAPS}/foreign", ownerReferences=[REFERENCE | {"uid": "x"}])
    for _ in range(2):
        await run.send("GET", path)
    assert run.itself.dependents == [(CONFIG_MAP, Ownership.OWNER_REFERENCE)]


async def test_object_that_only_mentions_owner_is_not_reported(run: Run, api_server: ApiServer) -> None:
    api_server.add(f"{CONFIG_MAPS}/old", labels={"about": "uid-of-one"})
    await run.send("GET", CONFIG_MAPS)
    assert run.itself.dependents == []


@pytest.mark.parametrize("cut", [0, 30])
async def test_compressed_list_is_inspected(run: Run, api_server: ApiServer, cut: int) -> None:
    items = [{"metadata": {"name": str(i), "uid": str(i), "ownerReferences": [REFERENCE]}} for i in range(50)]
    packed = gzip.compress(json.dumps({"kind": "ConfigMapList", "items": items}).encode())
    packed = packed[: len(packed) - cut]
    api_server.respond("GET", CONFIG_MAPS, packed, Content_Encoding="gzip")
    assert (await run.send("GET", CONFIG_MAPS, auto_decompress=False)).body == packed
    assert run.itself.dependents == ([] if cut else [(CONFIG_MAP, Ownership.OWNER_REFERENCE)])


async def test_list_that_is_huge_after_decompression_is_not_inspected(run: Run, api_server: ApiServer) -> None:
    item = {"metadata": {"name": "a", "uid": "a", "ownerReferences": [REFERENCE]}, "data": {"a": "x" * (64 << 20)}}
    packed = gzip.compress(json.dumps({"kind": "ConfigMapList", "items": [item]}).encode())
    api_server.respond("GET", CONFIG_MAPS, packed, Content_Encoding="gzip")
    tracemalloc.start()
    try:
        assert (await run.send("GET", CONFIG_MAPS, auto_decompress=False)).body == packed
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_INSPECTED_BYTES
    finally:
        tracemalloc.stop()
    assert run.itself.dependents == []


async def test_list_beyond_limit_is_not_inspected(
    run: Run, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.runner.proxy.server.MAX_INSPECTED_BYTES", 100)
    for number in range(20):
        api_server.add(f"{CONFIG_MAPS}/{number}", ownerReferences=[REFERENCE])
    assert len((await run.send("GET", CONFIG_MAPS)).json()["items"]) == 20
    assert run.itself.dependents == []
