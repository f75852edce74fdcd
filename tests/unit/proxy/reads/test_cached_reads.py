"""Reads from the cache: it gives the same responses as the API server, and leaves all other reads to it."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from structlog.testing import capture_logs

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.stored_object import StoredObject
from rolecall.proxy import Proxy, ReadWatermark, SessionSpec
from rolecall.proxy.reads.cached_reads import equality_labels
from tests.unit.proxy.api_server import ApiServer
from tests.unit.proxy.conftest import DEMO

PODS = "/api/v1/namespaces/ns/pods"
POD = GVK("", "v1", "Pod")


@dataclass
class Kept:
    """A fake cache."""

    resource_version: str = "100"
    objects: list[StoredObject] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=lambda: {"ns", ""})
    asked: list[tuple[str, str]] = field(default_factory=list)

    def view(self, resource: ApiResource, namespace: str) -> "Kept | None":
        """Return the cache itself, None for a namespace that is not cached."""
        self.asked.append((resource.plural, namespace))
        return self if namespace in self.namespaces else None

    def get(self, key: ObjectKey) -> StoredObject | None:
        """Return an object."""
        return next((stored for stored in self.objects if stored.key == key), None)

    def __iter__(self) -> Iterator[StoredObject]:
        """Iterate over the objects."""
        return iter(self.objects)

    def keep(self, name: str, version: str = "50", **metadata: Any) -> RawObject:
        """Put a pod into the cache."""
        names = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": version}
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": names | metadata}
        self.objects.append(StoredObject.of(obj))
        return obj


@dataclass
class Reader:
    """A run whose reads may be answered from the cache."""

    session: aiohttp.ClientSession
    watermark: ReadWatermark
    kept: Kept
    api_server: ApiServer
    dependents: list[GVK]

    async def get(self, target: str, **headers: str) -> tuple[bool, int, Any]:
        """Read; return whether it came from the cache, the status and the content."""
        async with self.session.get(target, headers=headers) as answer:
            return answer.headers.get("X-Cache") == "HIT", answer.status, await answer.json(content_type=None)


@pytest.fixture
async def reader(api_server: ApiServer) -> AsyncIterator[Reader]:
    kept, watermark = Kept(), ReadWatermark()
    dependents: list[GVK] = []
    async with Client(Configuration(host=api_server.url)) as client:
        proxy = Proxy(client, cache=kept)
        await proxy.start()
        spec = SessionSpec(
            request_gvk=DEMO,
            key=ObjectKey("ns", "one"),
            uid="uid-of-one",
            namespaced=True,
            on_write=lambda _obj: None,
            on_dependent=lambda resource, _ownership: dependents.append(resource.gvk),
            watermark=watermark,
            uncached=frozenset({GVK("", "v1", "ConfigMap")}),
        )
        headers = {"Authorization": f"Bearer {proxy.register(spec).secret}"}
        async with aiohttp.ClientSession(proxy.url, headers=headers) as session:
            yield Reader(session, watermark, kept, api_server, dependents)
        await proxy.stop()


async def test_an_object_comes_from_the_cache_whole(reader: Reader) -> None:
    obj = reader.kept.keep("web", annotations={"a": "ü"})
    assert await reader.get(f"{PODS}/web") == (True, 200, obj)
    assert await reader.get(f"{PODS}/web/status") == (True, 200, obj)
    assert reader.api_server.received == []


async def test_what_the_cache_does_not_have_is_asked_for(reader: Reader) -> None:
    assert (await reader.get(f"{PODS}/web"))[:2] == (False, 404)
    reader.api_server.add(f"{PODS}/web", resourceVersion="60")
    assert (await reader.get(f"{PODS}/web"))[:2] == (False, 200)


async def test_a_list_has_the_form_of_the_api_servers_and_no_continuation(reader: Reader) -> None:
    objects = [reader.kept.keep("a"), reader.kept.keep("b")]
    expected = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "100"}, "items": objects}
    assert await reader.get(PODS) == (True, 200, expected)
    assert await reader.get("/api/v1/pods?limit=2") == (True, 200, expected)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [("app=web", ["a", "b"]), ("app==web,tier=one", ["a"]), ("app = web , tier = two", ["b"]), ("app=", [])],
)
async def test_labels_are_selected_by_equality(reader: Reader, selector: str, expected: list[str]) -> None:
    reader.kept.keep("a", labels={"app": "web", "tier": "one"})
    reader.kept.keep("b", labels={"app": "web", "tier": "two"})
    reader.kept.keep("c")
    async with reader.session.get(PODS, params={"labelSelector": selector}) as answer:
        assert answer.headers["X-Cache"] == "HIT"
        assert [item["metadata"]["name"] for item in (await answer.json())["items"]] == expected


@pytest.mark.parametrize(
    "target",
    [
        f"{PODS}?labelSelector=app%20in%20(web)",
        f"{PODS}?labelSelector=app!=web",
        f"{PODS}?labelSelector=app",
        f"{PODS}?labelSelector=a=1,a=2",
        f"{PODS}?fieldSelector=metadata.name=a",
        f"{PODS}?continue=abc",
        f"{PODS}?limit=1",
        f"{PODS}?limit=x",
        f"{PODS}?=x",
        f"{PODS}?resourceVersion=70",
        f"{PODS}?resourceVersion=0&resourceVersionMatch=NotOlderThan",
        f"{PODS}/a/log",
        "/api/v1/namespaces/other/pods",
        "/api/v1/namespaces/ns/configmaps",
        "/api/v1/namespaces/ns/unknowns",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/version",
    ],
)
async def test_whatever_a_cache_cannot_answer_alike_is_forwarded(reader: Reader, target: str) -> None:
    reader.kept.keep("a")
    reader.kept.keep("b")
    is_hit, *_ = await reader.get(target)
    assert not is_hit
    assert reader.api_server.last.target == target


@pytest.mark.parametrize(
    ("name", "value", "is_hit"),
    [
        ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", False),
        ("Accept", "application/vnd.kubernetes.protobuf", False),
        ("Accept", "application/vnd.kubernetes.protobuf,application/json", True),
        ("Accept", "application/json, */*", True),
        ("Impersonate-User", "somebody", False),
    ],
)
async def test_headers_that_ask_for_another_answer_get_it(
    reader: Reader, name: str, value: str, *, is_hit: bool
) -> None:
    reader.kept.keep("a")
    assert (await reader.get(f"{PODS}/a", **{name: value}))[0] is is_hit


async def test_a_watch_is_never_answered_with_an_object(reader: Reader) -> None:
    reader.kept.keep("a")
    reader.api_server.watch_events.put_nowait(b'{"type":"BOOKMARK"}\n')
    async with reader.session.get(f"{PODS}?watch=true&fieldSelector=metadata.name%3Da") as answer:
        assert await answer.content.readline() == b'{"type":"BOOKMARK"}\n'


async def test_an_own_write_is_read_back_however_far_behind_the_cache_is(reader: Reader) -> None:
    reader.kept.resource_version, old = "90", reader.kept.keep("web", "90")
    reader.api_server.objects[f"{PODS}/web"] = old | {"metadata": {**old["metadata"], "resourceVersion": "90"}}
    assert (await reader.get(f"{PODS}/web"))[0]
    async with reader.session.put(f"{PODS}/web", json=old | {"spec": {"a": 1}}) as answer:
        assert answer.status == 200
        version = (await answer.json())["metadata"]["resourceVersion"]
    assert int(version) > 90
    is_hit, _, content = await reader.get(f"{PODS}/web")
    assert (is_hit, content["spec"]) == (False, {"a": 1})
    assert not (await reader.get(PODS))[0]
    reader.kept.objects.clear()
    reader.kept.keep("web", version)
    reader.kept.resource_version = version
    assert (await reader.get(f"{PODS}/web"))[0]


async def test_what_the_run_has_deleted_does_not_come_back(reader: Reader) -> None:
    for name in ("web", "db"):
        reader.kept.keep(name)
        reader.api_server.add(f"{PODS}/{name}", resourceVersion="50")
    async with reader.session.delete(f"{PODS}/web") as answer:
        assert answer.status == 200
    assert (await reader.get(f"{PODS}/web"))[:2] == (False, 404)
    assert not (await reader.get(f"{PODS}/db"))[0]
    reader.kept.objects.pop(0)
    assert (await reader.get(f"{PODS}/db"))[0]
    assert (await reader.get(PODS))[0]


async def test_what_the_previous_run_saw_counts_too(reader: Reader) -> None:
    reader.kept.keep("web")
    reader.watermark.record_version(("", "pods"), "101")
    assert not (await reader.get(f"{PODS}/web"))[0]


async def test_the_version_of_a_list_that_was_forwarded_counts(reader: Reader) -> None:
    async def listed(_: web.Request) -> web.Response:
        return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "120"}, "items": []})

    reader.kept.keep("web")
    reader.api_server.add(f"{PODS}/web", resourceVersion="50")
    reader.api_server.answers["GET", PODS] = listed
    assert not (await reader.get(f"{PODS}?continue=x"))[0]
    assert not (await reader.get(f"{PODS}/web"))[0]
    reader.kept.resource_version = "120"
    assert (await reader.get(f"{PODS}/web"))[0]


async def test_dependents_in_a_cached_answer_are_reported(reader: Reader) -> None:
    reader.kept.keep(
        "web", ownerReferences=[{"apiVersion": "x/v1", "kind": "Demo", "name": "one", "uid": "uid-of-one"}]
    )
    assert (await reader.get(f"{PODS}/web"))[0]
    assert reader.dependents == [POD]


async def test_the_log_says_what_was_not_looked_up_in_the_words_that_tools_search(reader: Reader) -> None:
    with capture_logs() as lines:
        await reader.get("/api/v1/namespaces/other/pods/web")
        await reader.get("/api/v1/namespaces/ns/configmaps/cm")
    skipped = next(line for line in lines if line["event"] == "Skipping cache lookup")
    assert json.dumps(skipped["resource"], separators=(",", ":")) == (
        '{"IsResourceRequest":true,"Path":"/api/v1/namespaces/other/pods/web","Verb":"get","APIPrefix":"api",'
        '"APIGroup":"","APIVersion":"v1","Namespace":"other","Resource":"pods","Subresource":"","Name":"web",'
        '"Parts":["pods","web"]}'
    )
    assert "Skipping, because gvk is blacklisted" in [line["event"] for line in lines]


@pytest.mark.parametrize("selector", ["a in (b)", "!a", "a", "a!=b", "a=b=c", "a=b,a=c", "ä=b"])
def test_a_selector_of_another_form_is_none(selector: str) -> None:
    assert equality_labels(selector) is None
