"""Diffs of objects, as people read them."""

import copy

from rolecall.kube.references import RawObject
from rolecall.runner.record.timeline import as_yaml, diff_lines, without_server_fields

DEPLOYMENT: RawObject = {
    "apiVersion": "apps/v1",
    "metadata": {"name": "web", "uid": "1", "resourceVersion": "7", "managedFields": [{}], "labels": {"a": "b"}},
    "spec": {"replicas": 1, "containers": [{"name": "one", "image": "i:1"}, {"name": "two", "image": "j:1"}]},
}


def test_a_changed_line_stands_below_what_it_belongs_to() -> None:
    after = copy.deepcopy(DEPLOYMENT)
    after["spec"]["containers"][1]["image"] = "j:2"
    after["metadata"]["labels"]["c"] = "d"
    assert diff_lines(DEPLOYMENT, after) == [
        " metadata:",
        "   labels:",
        "+    c: d",
        " spec:",
        "   containers:",
        "   - name: two",
        "-    image: j:1",
        "+    image: j:2",
    ]


def test_equal_objects_have_no_diff() -> None:
    assert diff_lines(DEPLOYMENT, copy.deepcopy(DEPLOYMENT)) == []


def test_an_object_that_was_not_there_is_shown_whole() -> None:
    assert diff_lines(None, {"kind": "A", "data": {"b": "c"}}) == ["+kind: A", "+data:", "+  b: c"]


def test_lines_of_a_text_are_compared_one_by_one() -> None:
    before, after = {"data": {"f": "one\n\n  two\n"}}, {"data": {"f": "one\n\n  three\n"}}
    assert diff_lines(before, after) == [" data:", "   f: |", "     one", "-      two", "+      three"]


def test_equal_parts_are_written_in_full() -> None:
    part = {"a": 1}
    assert as_yaml({"one": part, "two": part, "text": "ends\n\n"}) == [
        *("one:", "  a: 1", "two:", "  a: 1"),
        *("text: |+", "  ends", ""),
    ]


def test_what_the_api_server_keeps_for_itself_is_left_out() -> None:
    assert without_server_fields(DEPLOYMENT)["metadata"] == {"name": "web", "labels": {"a": "b"}}
    assert without_server_fields({"data": {}}) == {"data": {}}


def test_a_long_text_of_equal_lines_is_compared_in_time() -> None:
    before = {"data": {"f": "same\n" * 30_000}}
    assert diff_lines(before, {"data": {"f": "same\n" * 30_000 + "other\n"}})[-1] == "+    other"
