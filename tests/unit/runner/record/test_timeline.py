"""Diffs of objects, as people read them."""

import copy
from typing import Any

import pytest

from rolecall.kube.references import RawObject
from rolecall.runner.record.timeline import as_yaml, diff_lines, without_server_fields

DEPLOYMENT: RawObject = {
    "apiVersion": "apps/v1",
    "metadata": {"name": "web", "uid": "1", "resourceVersion": "7", "managedFields": [{}], "labels": {"a": "b"}},
    "spec": {"replicas": 1, "containers": [{"name": "one", "image": "i:1"}, {"name": "two", "image": "j:1"}]},
}


def test_changed_line_is_below_its_parents() -> None:
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


def test_new_object_is_shown_whole() -> None:
    assert diff_lines(None, {"kind": "A", "data": {"b": "c"}}) == ["+kind: A", "+data:", "+  b: c"]


def test_lines_of_a_string_are_compared_separately() -> None:
    before, after = {"data": {"f": "one\n\n  two\n"}}, {"data": {"f": "one\n\n  three\n"}}
    assert diff_lines(before, after) == [" data:", "   f: |", "     one", "-      two", "+      three"]


def test_equal_parts_are_written_in_full() -> None:
    part = {"a": 1}
    assert as_yaml({"one": part, "two": part, "text": "ends\n\n"}) == [
        *("one:", "  a: 1", "two:", "  a: 1"),
        *("text: |+", "  ends", ""),
    ]


def test_fields_of_the_api_server_are_omitted() -> None:
    assert without_server_fields(DEPLOYMENT)["metadata"] == {"name": "web", "labels": {"a": "b"}}
    assert without_server_fields({"data": {}}) == {"data": {}}


def test_long_string_of_equal_lines_is_compared_quickly() -> None:
    before = {"data": {"f": "same\n" * 30_000}}
    assert diff_lines(before, {"data": {"f": "same\n" * 30_000 + "other\n"}})[-1] == "+    other"


@pytest.mark.parametrize("name", ["type", "name"])
def test_changed_item_of_a_list_is_shown_with_what_names_it(name: str) -> None:
    """The server's order of fields is alphabetical, so the name is neither first nor part of the change."""

    def status(second: str) -> dict[str, Any]:
        items = [
            {"lastTransitionTime": "1", "status": "True", name: "Ready"},
            {"a": "1", "status": second, name: "Old"},
        ]
        return {"type": "Opaque", "status": {"conditions": items}}

    assert diff_lines(status("True"), status("False")) == [
        " status:",
        "   conditions:",
        f"   - {name}: Old",
        "-    status: 'True'",
        "+    status: 'False'",
    ]
