import copy
from typing import Any

import pytest

from rolecall.kube import metadata
from rolecall.kube.references import RawObject

NONSENSE: list[dict[str, Any]] = [{}, {"metadata": None}, {"metadata": "text"}, {"metadata": []}, {"metadata": {}}]


@pytest.mark.parametrize("obj", NONSENSE)
def test_missing_or_invalid_metadata_is_absent(obj: dict[str, Any]) -> None:
    assert metadata.metadata_of(obj) == {}
    assert metadata.uid_of(obj) == ""
    assert metadata.resource_version_of(obj) == ""
    assert metadata.generation_of(obj) == 0
    assert metadata.annotation_of(obj, "a") is None
    assert metadata.owner_references_of(obj) == ()
    assert not metadata.is_being_deleted(obj)
    assert not metadata.has_finalizer(obj, "a/b")


@pytest.mark.parametrize("found", [None, "text", 5, {"a": 1}, [None, "text", 5]])
def test_invalid_lists_and_mappings_are_empty(found: object) -> None:
    obj = {"metadata": {"finalizers": found, "ownerReferences": found, "generation": "2"}}
    assert not metadata.has_finalizer(obj, "a/b")
    assert metadata.owner_references_of(obj) == ()
    assert metadata.generation_of(obj) == 0


def test_finalizer_is_appended_once_to_copy() -> None:
    obj = {"metadata": {"name": "web", "finalizers": ["a/b"]}}
    before = copy.deepcopy(obj)
    once = metadata.with_finalizer(obj, "c/d", "")
    assert once["metadata"] == {"name": "web", "finalizers": ["a/b", "c/d"]}
    assert metadata.with_finalizer(once, "c/d", "") == once
    assert obj == before


def test_finalizer_has_a_note_of_its_operator_until_it_is_removed() -> None:
    obj: RawObject = {"metadata": {"finalizers": ["c/d"], "annotations": {"x": "y"}}}
    before = copy.deepcopy(obj)
    noted = metadata.with_finalizer(obj, "c/d", "team in (a)")
    assert noted["metadata"]["annotations"] == {"x": "y", metadata.FINALIZER_OF_ANNOTATION: "team in (a)"}
    released = metadata.without_finalizer(noted, "c/d")
    assert released["metadata"] == {"finalizers": [], "annotations": {"x": "y"}}
    assert obj == before


def test_finalizer_is_removed_from_copy() -> None:
    obj = {"metadata": {"finalizers": ["a/b", "c/d", "e/f"]}}
    before = copy.deepcopy(obj)
    assert metadata.without_finalizer(obj, "c/d")["metadata"]["finalizers"] == ["a/b", "e/f"]
    assert metadata.without_finalizer({}, "c/d")["metadata"]["finalizers"] == []
    assert obj == before
