"""A record shows the objects of the cluster before its run changed them."""

import base64
import json
from pathlib import Path

import pytest

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.sessions import Exchange
from rolecall.workbench.replay.recorded_cluster import RecordSource
from tests.unit.workbench.replay.runs import (
    DONE,
    GONE,
    MAPS,
    NEWER,
    OLDER,
    PODS,
    SECRETS,
    ask,
    config_map,
    listed,
    record_of,
    resource,
)

A = ObjectKey("ns", "a")
BEFORE, AFTER = config_map("before"), config_map("after")
SLIGHT = {"data": {"a": "after"}}


def source_of(tmp_path: Path, *exchanges: Exchange) -> RecordSource:
    return RecordSource(record_of(tmp_path, *exchanges))


async def value_of(source: RecordSource) -> str | None:
    """Return the value in the ConfigMap "a", None if it was not there."""
    found = await source.get(resource("configmaps"), A)
    return None if found is None else str(found["data"]["a"])


async def names_in(source: RecordSource, plural: str = "configmaps", **selectors: str) -> list[str]:
    found = await source.list(resource(plural), "ns", **selectors)
    return sorted(each["metadata"]["name"] for each in found)


FIRST_RESPONSES: dict[str, tuple[list[Exchange], str | None]] = {
    "GET that finds it": ([ask("GET", f"{MAPS}/a", None, BEFORE)], "before"),
    "GET that does not": ([ask("GET", f"{MAPS}/a", None, GONE, 404)], None),
    "GET, then a PATCH": (
        [ask("GET", f"{MAPS}/a", None, BEFORE), ask("PATCH", f"{MAPS}/a", SLIGHT, AFTER)],
        "before",
    ),
    "PATCH, then a GET": (
        [ask("PATCH", f"{MAPS}/a", SLIGHT, AFTER), ask("GET", f"{MAPS}/a", None, config_map("later"))],
        "after",
    ),
    "list, then a PUT": ([ask("GET", MAPS, None, listed(BEFORE)), ask("PUT", f"{MAPS}/a", AFTER, AFTER)], "before"),
    "POST that creates it": ([ask("POST", MAPS, AFTER, AFTER, 201), ask("GET", f"{MAPS}/a", None, AFTER)], None),
    "POST that finds it": ([ask("POST", MAPS, AFTER, {"kind": "Status"}, 409)], "after"),
    "POST that finds it, then a GET": (
        [ask("GET", f"{MAPS}/a", None, BEFORE), ask("POST", MAPS, AFTER, {"kind": "Status"}, 409)],
        "before",
    ),
    "apply that creates it": ([ask("PATCH", f"{MAPS}/a?fieldManager=x", AFTER, AFTER, 201)], None),
    "PATCH that does not find it": ([ask("PATCH", f"{MAPS}/a", SLIGHT, GONE, 404)], None),
    "DELETE that returns it": ([ask("DELETE", f"{MAPS}/a", None, BEFORE)], "before"),
    "DELETE that does not find it": ([ask("DELETE", f"{MAPS}/a", None, GONE, 404)], None),
    "nothing": ([], None),
    "dry run by the body": (
        [ask("DELETE", f"{MAPS}/a", {"dryRun": ["All"]}, AFTER), ask("GET", f"{MAPS}/a", None, BEFORE)],
        "before",
    ),
    "dry run": ([ask("PATCH", f"{MAPS}/a?dryRun=All", SLIGHT, AFTER), ask("GET", f"{MAPS}/a", None, BEFORE)], "before"),
}


@pytest.mark.parametrize("case", FIRST_RESPONSES)
async def test_first_response_shows_an_object_before_the_run(case: str, tmp_path: Path) -> None:
    exchanges, expected = FIRST_RESPONSES[case]
    assert await value_of(source_of(tmp_path, *exchanges)) == expected


async def test_object_shown_only_by_a_write_is_assumed(tmp_path: Path) -> None:
    source = source_of(tmp_path, ask("PATCH", f"{MAPS}/a", SLIGHT, AFTER))
    assert source.assumptions == [
        "ConfigMap ns/a was before the run as in the response to a PATCH: the record does not show it earlier",
    ]
    assert source_of(tmp_path, ask("GET", f"{MAPS}/a", None, BEFORE)).assumptions == []


async def test_deleted_object_existed_without_marks_of_deletion(tmp_path: Path) -> None:
    dying = config_map("before", deletionTimestamp=NEWER, deletionGracePeriodSeconds=30, finalizers=["orphan", "mine"])
    for answer, expected in ((dying, ["mine"]), (DONE, None)):
        found = await source_of(tmp_path, ask("DELETE", f"{MAPS}/a", None, answer)).get(resource("configmaps"), A)
        assert found is not None
        metadata = found["metadata"]
        assert (metadata["name"], metadata["namespace"], found["kind"]) == ("a", "ns", "ConfigMap")
        assert metadata["uid"]
        assert not metadata.keys() & {"deletionTimestamp", "deletionGracePeriodSeconds"}
        assert metadata.get("finalizers") == expected


async def test_primary_and_its_namespace_exist(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    primary = await source.get(resource("demos"), ObjectKey("ns", "one"))
    assert primary is not None
    assert primary["metadata"]["uid"] == "uid-of-one"
    assert await source.get(resource("namespaces"), ObjectKey("", "ns")) is not None
    assert await source.get(resource("namespaces"), ObjectKey("", "elsewhere")) is None


async def test_list_selects_from_all_recorded_objects(tmp_path: Path) -> None:
    one, two = config_map("1", "one", labels={"app": "x"}), config_map("2", "two", labels={"app": "y"})
    source = source_of(
        tmp_path,
        ask("GET", f"{MAPS}?labelSelector=app%3Dx", None, listed(one)),
        ask("GET", f"{MAPS}/two", None, two),
    )
    assert await names_in(source, labels="app=x") == ["one"]
    assert await names_in(source, labels="app in (x, y),!old") == ["one", "two"]
    assert await names_in(source, fields="metadata.name=two") == ["two"]
    found = await source.list(resource("configmaps"), "")
    assert {each["kind"] for each in found} == {"ConfigMap"}
    assert await source.list(resource("configmaps"), "elsewhere") == []


async def test_object_created_by_the_run_did_not_exist_before(tmp_path: Path) -> None:
    made = config_map("1", "made", creationTimestamp=NEWER)
    controller = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": True}

    def pod(name: str, created: str) -> RawObject:
        metadata = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": [controller]}}

    pods = listed(pod("old", OLDER), pod("same-second", NEWER), kind="Pod")
    source = source_of(tmp_path, ask("POST", MAPS, made, made, 201), ask("GET", PODS, None, pods))
    assert await names_in(source, "pods") == ["old"]
    assert await names_in(source_of(tmp_path, ask("GET", PODS, None, pods)), "pods") == ["old", "same-second"]


def metadata_only(obj: RawObject) -> RawObject:
    """Return an object as the API server returns it for ``as=PartialObjectMetadata``."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}


@pytest.mark.parametrize("is_list", [False, True], ids=["get", "list"])
async def test_metadata_only_read_shows_that_an_object_existed(tmp_path: Path, *, is_list: bool) -> None:
    partial = metadata_only(BEFORE)
    items = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [partial]}
    read = ask("GET", MAPS, None, items) if is_list else ask("GET", f"{MAPS}/a", None, partial)
    found = await source_of(tmp_path, read).get(resource("configmaps"), A)
    assert found is not None
    assert (found["apiVersion"], found["kind"], found["metadata"]["name"]) == ("v1", "ConfigMap", "a")
    assert "data" not in found
    whole = ask("GET", f"{MAPS}/a", None, BEFORE)
    for order in ([read, whole], [whole, read]):
        assert await value_of(source_of(tmp_path, *order)) == "before"
    made = ask("POST", MAPS, BEFORE, BEFORE, 201)
    assert await source_of(tmp_path, made, read).get(resource("configmaps"), A) is None


async def test_watch_shows_objects(tmp_path: Path) -> None:
    events = [{"type": "ADDED", "object": BEFORE}, {"type": "MODIFIED", "object": AFTER}]
    lines = "".join(f"{json.dumps(each)}\n" for each in events).encode()
    assert await value_of(source_of(tmp_path, ask("GET", f"{MAPS}?watch=1", None, lines))) == "before"


async def test_secret_has_placeholders_that_can_be_decoded(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"planted-Pa55word").decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}}
    secret |= {"data": {"password": encoded, "odd": "no base64 at all!"}}
    source = source_of(tmp_path, ask("GET", f"{SECRETS}/s", None, secret))
    found = await source.get(resource("secrets"), ObjectKey("ns", "s"))
    assert found is not None
    assert base64.b64decode(found["data"]["odd"], validate=True)
    placeholder = base64.b64decode(found["data"]["password"], validate=True).decode()
    assert len(placeholder) == len("planted-Pa55word")
    assert placeholder != "planted-Pa55word"


async def test_unrecorded_objects_are_not_known(tmp_path: Path) -> None:
    source = source_of(
        tmp_path,
        ask("GET", f"{MAPS}/gone", None, GONE, 404),
        ask("GET", PODS, None, listed(kind="Pod")),
    )
    assert source.is_known("", "configmaps", ObjectKey("ns", "gone"))
    assert not source.is_known("", "configmaps", ObjectKey("ns", "other"))
    assert source.is_known("", "pods", ObjectKey("ns", "any")), "the list of all pods shows that it is not there"
    assert not source.is_known("", "pods", ObjectKey("elsewhere", "any"))
