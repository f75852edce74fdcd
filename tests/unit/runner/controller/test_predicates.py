from typing import Any

import pytest

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.controller.predicates import (
    PrimaryPredicate,
    annotations_changed,
    dependent_changed,
    generation_changed,
)
from tests.unit.runner.controller.samples import make_change, make_object

WEB = make_object(generation=1)
PAUSED = FieldPath.of_names("metadata", "annotations", "example.com/paused")


def updated(**fields: Any) -> RawObject:
    defaults: dict[str, Any] = {"generation": 1, "resourceVersion": "2"}
    return make_object(**(defaults | fields))


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (None, WEB, True),
        (WEB, None, True),
        (WEB, updated(generation=2), True),
        (WEB, updated(status={"a": 1}), False),
        (WEB, updated(labels={"a": "b"}), False),
        (make_object(), make_object(resourceVersion="2"), True),
        (make_object(generation=0), make_object(generation=0), False),
        (make_object(), make_object(generation=1, resourceVersion="2"), True),
    ],
)
def test_generation_changed(old: RawObject | None, new: RawObject | None, *, counts: bool) -> None:
    assert generation_changed(make_change(old, new)) is counts


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (None, WEB, True),
        (WEB, None, True),
        (WEB, updated(annotations={"a": "b"}), True),
        (make_object(annotations={"a": "b"}), make_object(annotations={"a": "c"}), True),
        (make_object(annotations={"a": "b"}), make_object(annotations={"a": "b"}, labels={"c": "d"}), False),
        (WEB, updated(annotations={}), False),
    ],
)
def test_annotations_changed(old: RawObject | None, new: RawObject | None, *, counts: bool) -> None:
    assert annotations_changed(make_change(old, new)) is counts


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (None, WEB, False),
        (WEB, None, True),
        (WEB, updated(status={"a": 1}), False),
        (WEB, updated(managedFields=[{"manager": "x"}]), False),
        (WEB, updated(labels={"a": "b"}), True),
        (WEB, updated(spec={"a": "b"}), True),
    ],
)
def test_dependent_changed(old: RawObject | None, new: RawObject | None, *, counts: bool) -> None:
    assert dependent_changed(make_change(old, new)) is counts


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (None, WEB, True),
        (WEB, None, True),
        (WEB, updated(generation=2), True),
        (WEB, updated(annotations={"a": "b"}), False),
        (WEB, updated(finalizers=["x"]), False),
        (WEB, updated(status={"a": 1}), False),
        (make_object(), make_object(resourceVersion="2"), True),
    ],
)
def test_primaries_count_as_for_the_go_runner(old: RawObject | None, new: RawObject | None, *, counts: bool) -> None:
    assert PrimaryPredicate()(make_change(old, new)) is counts


def test_annotations_of_a_primary_count_when_they_are_watched() -> None:
    predicate = PrimaryPredicate(watch_annotations=True)
    assert predicate(make_change(WEB, updated(annotations={"a": "b"})))
    assert not predicate(make_change(WEB, updated(labels={"a": "b"})))


def test_a_field_that_is_watched_counts_without_a_new_generation() -> None:
    predicate = PrimaryPredicate(fields=(PAUSED,))
    sleep = updated(annotations={"example.com/paused": "true"})
    assert predicate(make_change(WEB, sleep, (PAUSED,)))
    assert predicate(make_change(sleep, WEB, (PAUSED,)))
    assert not predicate(make_change(WEB, updated(annotations={"a": "b"}), (PAUSED,)))


SELECTED = make_object(labels={"app": "a"}, generation=1)


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (None, SELECTED, True),
        (None, WEB, False),
        (SELECTED, None, True),
        (WEB, None, False),
        (WEB, updated(generation=2, labels={"app": "a"}), True),
        (SELECTED, updated(generation=2), False),
        (WEB, updated(labels={"app": "a"}), True),
        (SELECTED, updated(labels={"app": "a"}), False),
        (SELECTED, updated(labels={}), False),
    ],
)
def test_a_selector_looks_at_the_new_object_and_at_the_last_of_a_deleted_one(
    old: RawObject | None, new: RawObject | None, *, counts: bool
) -> None:
    predicate = PrimaryPredicate(LabelSelector.compile({"matchLabels": {"app": "a"}}))
    assert predicate(make_change(old, new)) is counts


@pytest.mark.parametrize(("has_finalizer", "counts"), [(True, True), (False, False)])
def test_an_object_on_its_way_out_counts_whatever_its_labels_if_a_finalizer_may_hold_it(
    *, has_finalizer: bool, counts: bool
) -> None:
    predicate = PrimaryPredicate(LabelSelector.compile({"matchLabels": {"app": "a"}}), has_finalizer=has_finalizer)
    leaving = updated(generation=2, deletionTimestamp="2026-01-01T12:00:00Z")
    assert predicate(make_change(WEB, leaving)) is counts


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"deployment.kubernetes.io/revision": "2"}},
        {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
        {"generation": 2},
        {"managedFields": [{"manager": "somebody"}]},
    ],
)
def test_what_controllers_keep_for_themselves_in_a_dependent_is_no_change(metadata: dict[str, Any]) -> None:
    assert not dependent_changed(make_change(WEB, updated(**metadata)))


@pytest.mark.parametrize("metadata", [{"annotations": {"example.com/a": "b"}}, {"labels": {"a": "b"}}])
def test_labels_and_annotations_of_a_dependent_that_somebody_changed_are_a_change(metadata: dict[str, Any]) -> None:
    assert dependent_changed(make_change(WEB, updated(**metadata)))
