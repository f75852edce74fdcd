from typing import Any

import pytest

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.proxy.reads.read_watermark import MAX_ABSENT_KEYS, ReadWatermark, track_read
from rolecall.proxy.request_info import parse

PODS = ("", "pods")
POD_PATH = "/api/v1/namespaces/ns/pods"
WEB = ObjectKey("ns", "web")


def pod(record_version: str, name: str = "web") -> RawObject:
    return {
        "kind": "Pod",
        "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": record_version},
    }


def pods(record_version: str, *items: RawObject) -> RawObject:
    return {"kind": "PodList", "metadata": {"resourceVersion": record_version}, "items": list(items)}


@pytest.fixture
def watermark() -> ReadWatermark:
    watermark = ReadWatermark()
    watermark.record_version(PODS, "10")
    return watermark


def test_who_has_seen_nothing_takes_any_position() -> None:
    assert ReadWatermark().is_reached_by(PODS, "1")


@pytest.mark.parametrize("position", ["", "abc", "-1"])
def test_a_position_that_is_no_number_covers_nothing(position: str) -> None:
    assert not ReadWatermark().is_reached_by(PODS, position)


@pytest.mark.parametrize(
    ("method", "target", "content"),
    [
        ("GET", f"{POD_PATH}/web", pod("20")),
        ("GET", POD_PATH, pods("20", pod("3"))),
        ("GET", f"{POD_PATH}/web/scale", pod("20")),
        ("PUT", f"{POD_PATH}/web", pod("20")),
        ("PATCH", f"{POD_PATH}/web/status", pod("20")),
        ("POST", POD_PATH, pod("20")),
        ("DELETE", f"{POD_PATH}/web", pod("20")),
    ],
)
def test_a_cache_has_to_come_as_far_as_any_answer_and_no_further(
    watermark: ReadWatermark, method: str, target: str, content: Any
) -> None:
    watermark.record_response(parse(method, target), 200, content)
    assert not watermark.is_reached_by(PODS, "19")
    assert watermark.is_reached_by(PODS, "20")
    assert watermark.is_reached_by(("", "secrets"), "1")


def test_what_was_seen_stays_seen_whatever_older_comes_later(watermark: ReadWatermark) -> None:
    watermark.record_response(parse("GET", f"{POD_PATH}/web"), 200, pod("5"))
    assert not watermark.is_reached_by(PODS, "9")


@pytest.mark.parametrize(
    ("method", "target", "content"),
    [
        ("GET", f"{POD_PATH}/web", None),
        ("GET", f"{POD_PATH}/web", pod("not a number")),
        ("PATCH", f"{POD_PATH}/web?dryRun=All", pod("11")),
        ("DELETE", POD_PATH, {"kind": "Status"}),
        ("POST", f"{POD_PATH}/web/eviction", {"kind": "Status"}),
    ],
)
def test_after_an_answer_that_does_not_say_how_new_it_is_only_a_list_finds_the_way_back(
    watermark: ReadWatermark, method: str, target: str, content: Any
) -> None:
    watermark.record_response(parse(method, target), 200, content)
    assert not watermark.is_reached_by(PODS, "1000")
    watermark.record_response(parse("GET", f"{POD_PATH}/web"), 200, pod("12"))
    assert not watermark.is_reached_by(PODS, "1000")
    watermark.record_response(parse("GET", POD_PATH), 200, pods("13"))
    assert watermark.is_reached_by(PODS, "13")
    assert not watermark.is_reached_by(PODS, "12")


@pytest.mark.parametrize(
    ("method", "target", "status", "content"),
    [
        ("GET", f"{POD_PATH}/web", 404, {"kind": "Status"}),
        ("PATCH", f"{POD_PATH}/web", 404, {"kind": "Status"}),
        ("DELETE", f"{POD_PATH}/web", 200, {"kind": "Status"}),
        ("DELETE", f"{POD_PATH}/web", 202, pod("11")),
        ("DELETE", POD_PATH, 200, pods("11", pod("10"))),
    ],
)
def test_what_was_missing_or_deleted_is_remembered_until_it_is_seen_again(
    watermark: ReadWatermark, method: str, target: str, status: int, content: Any
) -> None:
    watermark.record_response(parse(method, target), status, content)
    assert watermark.absent_keys(PODS) == {WEB}
    assert watermark.is_reached_by(PODS, "1000")
    watermark.record_response(parse("GET", f"{POD_PATH}/web"), 200, pod("12"))
    assert watermark.absent_keys(PODS) == frozenset()


def test_a_list_says_what_is_missing(watermark: ReadWatermark) -> None:
    watermark.record_response(parse("GET", f"{POD_PATH}/web"), 404, None)
    watermark.record_response(parse("GET", POD_PATH), 200, pods("20"))
    assert watermark.absent_keys(PODS) == frozenset()


def test_a_missing_namespace_lies_in_no_namespace() -> None:
    watermark = ReadWatermark()
    watermark.record_response(parse("GET", "/api/v1/namespaces/ns"), 404, None)
    assert watermark.absent_keys(("", "namespaces")) == {ObjectKey("", "ns")}


def test_the_number_of_missing_objects_is_bounded(watermark: ReadWatermark) -> None:
    for number in range(MAX_ABSENT_KEYS + 1):
        watermark.record_absent(PODS, ObjectKey("ns", str(number)))
    assert watermark.absent_keys(PODS) == frozenset()
    assert not watermark.is_reached_by(PODS, "1000")


@pytest.mark.parametrize("status", [401, 403, 409, 422, 500, 503])
def test_a_refusal_shows_nothing(watermark: ReadWatermark, status: int) -> None:
    watermark.record_response(parse("GET", f"{POD_PATH}/web"), status, {"kind": "Status"})
    assert watermark.is_reached_by(PODS, "10")


def test_nothing_is_covered_while_a_watch_is_open_nor_after_it(watermark: ReadWatermark) -> None:
    info = parse("GET", f"{POD_PATH}?watch=true")
    with track_read(watermark, info, 200):
        watermark.record_response(parse("GET", POD_PATH), 200, pods("20"))
        assert not watermark.is_reached_by(PODS, "1000")
    assert not watermark.is_reached_by(PODS, "1000")
    watermark.record_response(parse("GET", POD_PATH), 200, pods("30"))
    assert watermark.is_reached_by(PODS, "30")


@pytest.mark.parametrize("target", [f"{POD_PATH}/web/log?follow=true", "/version"])
def test_what_holds_no_objects_shows_none(watermark: ReadWatermark, target: str) -> None:
    with track_read(watermark, parse("GET", target), 200) as record_content:
        record_content(None)
    assert watermark.is_reached_by(PODS, "10")


def test_an_answer_that_passes_is_noted_when_it_is_told(watermark: ReadWatermark) -> None:
    with track_read(watermark, parse("GET", POD_PATH), 200) as record_content:
        record_content(pods("20"))
    assert watermark.is_reached_by(PODS, "20")
    assert not watermark.is_reached_by(PODS, "19")


def test_an_answer_that_nobody_read_to_its_end_leaves_no_way_to_tell(watermark: ReadWatermark) -> None:
    with track_read(watermark, parse("GET", POD_PATH), 200):
        pass
    assert not watermark.is_reached_by(PODS, "1000")


def test_without_a_cache_nothing_is_noted() -> None:
    with track_read(None, parse("GET", POD_PATH), 200) as record_content:
        record_content({})
