from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Finalizer, ReferenceType, Trigger, Watch
from rolecall.runner.controller.triggers import (
    STATUS_FIELDS,
    TriggerIndex,
    dependent_changed,
    primary_changed,
    requests_for_annotation,
    requests_for_owner,
)
from tests.unit.runner.controller.samples import POD, make_change, make_object

FOO = GVK("example.com", "v1", "Foo")
PHASE = FieldPath.parse("$.status.phase")
X, Y = ObjectKey("default", "x"), ObjectKey("default", "y")
WATCH = Watch(FOO, RoleContent(Path("roles/foo")))
SELECTING = replace(WATCH, selector=LabelSelector.compile({"matchLabels": {"app": "a"}}))
NGINX = make_object(labels={"app": "nginx", "tier": "web"})


def labels_index(*, fields: tuple[FieldPath, ...] = ()) -> TriggerIndex:
    trigger = Trigger(POD, ReferenceType.LABELS, FieldPath.parse("$.spec.selector"), fields)
    return TriggerIndex(trigger, FOO)


def names_index(path: str = "$.spec.names") -> TriggerIndex:
    return TriggerIndex(Trigger(POD, ReferenceType.NAME, FieldPath.parse(path)), FOO)


def owner_index() -> TriggerIndex:
    return TriggerIndex(Trigger(POD, ReferenceType.OWNER), FOO)


def foo(**spec: Any) -> RawObject:
    return {"metadata": {"uid": "foo-uid"}, "spec": spec}


def found(index: TriggerIndex, old: RawObject | None, new: RawObject | None) -> list[ObjectKey]:
    change = make_change(old, new, index.trigger.fields)
    return [key for key, _ in index.requests_for(change)]


def owned(name: str = "x", uid: str = "foo-uid", api_version: str = "example.com/v1", kind: str = "Foo") -> RawObject:
    return make_object(ownerReferences=[{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}])


def test_primaries_match_if_the_object_has_all_their_labels() -> None:
    index = labels_index()
    index.update_primary(X, foo(selector={"app": "nginx"}))
    index.update_primary(Y, foo(selector={"app": "nginx", "tier": "db"}))
    assert found(index, None, NGINX) == [X]
    assert found(index, NGINX, NGINX) == [X]
    assert found(index, NGINX, None) == [X]


def test_the_reason_names_the_other_object() -> None:
    index = labels_index()
    index.update_primary(X, foo(selector={"app": "nginx"}))
    assert list(index.requests_for(make_change(None, NGINX))) == [(X, "Pod default/web created")]


def test_old_and_new_labels_both_match() -> None:
    index = labels_index()
    index.update_primary(X, foo(selector={"app": "nginx"}))
    index.update_primary(Y, foo(selector={"app": "apache"}))
    assert found(index, NGINX, make_object(labels={"app": "apache"})) == [X, Y]
    assert found(index, NGINX, make_object()) == [X]


@pytest.mark.parametrize("selector", [{}, None, "app=nginx", ["app"], {"app": 1}, {"app": None}])
def test_invalid_labels_match_nothing(selector: Any) -> None:
    index = labels_index()
    index.update_primary(X, foo(selector=selector))
    assert found(index, None, make_object(labels={"app": "nginx", "1": "1"})) == []
    assert found(index, None, make_object()) == []


@pytest.mark.parametrize(
    ("primary", "namespace", "matches"),
    [
        (X, "default", True),
        (X, "other", False),
        (X, "", True),
        (ObjectKey("", "x"), "default", True),
        (ObjectKey("", "x"), "", True),
    ],
)
def test_references_match_in_the_same_namespace_and_across_scopes(
    primary: ObjectKey, namespace: str, *, matches: bool
) -> None:
    for index in (labels_index(), names_index()):
        index.update_primary(primary, foo(selector={"app": "nginx"}, names="web"))
        other = make_object(namespace=namespace, labels={"app": "nginx"})
        assert found(index, None, other) == ([primary] if matches else [])


def test_changed_or_removed_primary_matches_by_its_present_references() -> None:
    index = labels_index()
    index.update_primary(X, foo(selector={"app": "nginx"}))
    index.update_primary(X, foo(selector={"app": "apache"}))
    assert found(index, None, NGINX) == []
    assert found(index, None, make_object(labels={"app": "apache"})) == [X]
    index.update_primary(X, foo())
    assert found(index, None, make_object(labels={"app": "apache"})) == []
    index.update_primary(X, foo(selector={"app": "nginx"}))
    index.remove_primary(X)
    index.remove_primary(X)
    assert found(index, None, NGINX) == []
    assert index._references._terms_by_attribute == {}
    assert index._references._terms_by_primary == {}


@pytest.mark.parametrize(
    ("names", "matches"),
    [("web", True), (["db", "web"], True), ([], False), ("", False), (None, False), (7, False), ([["web"]], False)],
)
def test_one_or_several_names_match(names: Any, *, matches: bool) -> None:
    index = names_index()
    index.update_primary(X, foo(names=names))
    assert found(index, None, make_object()) == ([X] if matches else [])


def test_path_with_several_values_gives_several_names() -> None:
    index = names_index("$.spec.volumes[*].secret.name")
    index.update_primary(X, foo(volumes=[{"secret": {"name": "db"}}, {"config": {}}, {"secret": {"name": "web"}}]))
    assert found(index, None, make_object()) == [X]
    assert found(index, None, make_object("other")) == []


@pytest.mark.parametrize(
    ("other", "matches"),
    [
        (owned(), True),
        (owned(api_version="example.com/v1beta1"), True),
        (owned(uid="of one that is gone"), False),
        (owned(kind="Bar"), False),
        (owned(api_version="other.com/v1"), False),
        (owned("unknown"), False),
        (make_object(), False),
    ],
)
def test_owner_matches_by_uid_group_and_kind(other: RawObject, *, matches: bool) -> None:
    index = owner_index()
    index.update_primary(X, foo())
    assert found(index, None, other) == ([X] if matches else [])


def test_added_or_removed_owner_reference_counts() -> None:
    index = owner_index()
    index.update_primary(X, foo())
    assert found(index, owned(), make_object()) == [X]
    assert found(index, make_object(), owned()) == [X]
    index.remove_primary(X)
    assert found(index, owned(), make_object()) == []


def test_update_counts_only_if_a_watched_field_changed() -> None:
    index = labels_index(fields=(PHASE,))
    index.update_primary(X, foo(selector={"app": "nginx"}))
    running = NGINX | {"status": {"phase": "Running"}}
    assert found(index, NGINX, running) == [X]
    assert found(index, running, running | {"spec": {"node": "a"}}) == []
    assert found(index, None, running) == [X]
    assert found(index, running, None) == [X]


def test_update_that_adds_or_removes_a_reference_counts() -> None:
    index = labels_index(fields=(PHASE,))
    index.update_primary(X, foo(selector={"app": "nginx"}))
    index.update_primary(Y, foo(selector={"tier": "web"}))
    assert found(index, NGINX, make_object(labels={"tier": "web"})) == [X]
    assert found(index, make_object(labels={"tier": "web"}), NGINX) == [X]


def test_index_splits_primaries_that_share_a_label() -> None:
    index = labels_index()
    for number in range(1000):
        index.update_primary(ObjectKey("default", f"x{number}"), foo(selector={"app": "nginx", "n": str(number)}))
    assert found(index, None, make_object(labels={"app": "nginx", "n": "500"})) == [ObjectKey("default", "x500")]
    largest = max(len(terms) for drawer in index._references._terms_by_attribute.values() for terms in drawer.values())
    assert largest <= 2


@pytest.mark.parametrize(
    ("other", "keys"),
    [
        (owned(), {X, ObjectKey("", "x")}),
        (owned(api_version="example.com/v9", uid="any"), {X, ObjectKey("", "x")}),
        (owned(kind="Bar"), set()),
        (owned(api_version="v1"), set()),
        (owned() | {"metadata": owned()["metadata"] | {"namespace": ""}}, {ObjectKey("", "x")}),
    ],
)
def test_owner_of_a_dependent_is_in_its_namespace_or_cluster_scoped(other: RawObject, keys: set[ObjectKey]) -> None:
    for change in (make_change(None, other), make_change(other, make_object())):
        assert {key for key, _uid in requests_for_owner(change, FOO)} == keys


def annotated(resource: str, kind: str) -> RawObject:
    names = {"operator-sdk/primary-resource": resource, "operator-sdk/primary-resource-type": kind}
    return make_object(annotations=names)


@pytest.mark.parametrize(
    ("resource", "kind", "keys"),
    [
        ("default/x", "Foo.example.com", {X}),
        ("x", "Foo.example.com", {ObjectKey("", "x")}),
        ("default/x", "Foo.other.com", set()),
        ("default/x", "Foo", set()),
        ("", "Foo.example.com", set()),
        ("default/", "Foo.example.com", set()),
    ],
)
def test_annotations_of_a_dependent_name_its_primary(resource: str, kind: str, keys: set[ObjectKey]) -> None:
    assert {key for key, _ in requests_for_annotation(make_change(None, annotated(resource, kind)), FOO)} == keys


def test_old_and_new_annotations_both_count() -> None:
    change = make_change(annotated("default/x", "Foo.example.com"), annotated("default/y", "Foo.example.com"))
    assert requests_for_annotation(change, FOO) == {(X, ""), (Y, "")}


@pytest.mark.parametrize("kind", ["Secret", "Secret."])
def test_annotation_for_the_core_group_may_end_with_a_dot(kind: str) -> None:
    change = make_change(None, annotated("default/x", kind))
    assert requests_for_annotation(change, GVK("", "v1", "Secret")) == {(X, "")}


WEB = make_object(generation=1)
PAUSED = FieldPath.of_names("metadata", "annotations", "example.com/paused")


def updated(**fields: Any) -> RawObject:
    defaults: dict[str, Any] = {"generation": 1, "resourceVersion": "2"}
    return make_object(**(defaults | fields))


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


ACTIVE: RawObject = {"f:active": {}}
ENDED: RawObject = {"f:active": {}, "f:conditions": {'k:{"type":"Complete"}': {".": {}}}}


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ([], [{"fieldsV1": {"f:status": ACTIVE}}], True),
        ([{"fieldsV1": {"f:status": ACTIVE}}], [{"fieldsV1": {"f:status": ENDED}}], True),
        ([{"fieldsV1": {"f:status": ENDED}}], [{"fieldsV1": {"f:status": ACTIVE}}], True),
        ([{"fieldsV1": {"f:status": ENDED}}], [{"fieldsV1": {"f:status": ENDED}, "time": "later"}], False),
        ([{"fieldsV1": {"f:status": ENDED}}], [{"fieldsV1": {"f:status": ENDED}}, {"fieldsV1": {"f:spec": {}}}], False),
        ([], [{"manager": "without fields"}], False),
    ],
)
def test_fields_of_a_status_count_where_they_are_followed(before: Any, after: Any, *, counts: bool) -> None:
    old, new = updated(managedFields=before, status={"a": 1}), updated(managedFields=after, status={"a": 2})
    assert dependent_changed(make_change(old, new, (STATUS_FIELDS,)), (STATUS_FIELDS,)) is counts
    assert not dependent_changed(make_change(old, new))


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (None, WEB, True),
        (WEB, None, True),
        (WEB, updated(generation=2), True),
        (WEB, updated(annotations={"a": "b"}), False),
        (WEB, updated(finalizers=["x"]), False),
        (WEB, updated(status={"a": 1}), False),
        (WEB, updated(labels={"a": "b"}), False),
        (make_object(), make_object(resourceVersion="2"), True),
        (make_object(generation=0), make_object(generation=0), False),
        (make_object(), make_object(generation=1, resourceVersion="2"), True),
    ],
)
def test_primary_change_counts_as_in_the_go_runner(
    old: RawObject | None, new: RawObject | None, *, counts: bool
) -> None:
    assert primary_changed(make_change(old, new), WATCH) is counts


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (WEB, updated(annotations={"a": "b"}), True),
        (updated(annotations={"a": "b"}), updated(annotations={"a": "c"}), True),
        (updated(annotations={"a": "b"}), updated(annotations={"a": "b"}, labels={"c": "d"}), False),
        (WEB, updated(annotations={}), False),
    ],
)
def test_changed_annotation_counts_if_annotations_are_watched(old: RawObject, new: RawObject, *, counts: bool) -> None:
    assert primary_changed(make_change(old, new), replace(WATCH, watch_annotations_changes=True)) is counts


def test_watched_field_counts_without_a_new_generation() -> None:
    sleep = updated(annotations={"example.com/paused": "true"})
    assert primary_changed(make_change(WEB, sleep, (PAUSED,)), WATCH, (PAUSED,))
    assert primary_changed(make_change(sleep, WEB, (PAUSED,)), WATCH, (PAUSED,))
    assert not primary_changed(make_change(WEB, updated(annotations={"a": "b"}), (PAUSED,)), WATCH, (PAUSED,))


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
def test_selector_applies_to_the_new_or_last_known_labels(
    old: RawObject | None, new: RawObject | None, *, counts: bool
) -> None:
    assert primary_changed(make_change(old, new), SELECTING) is counts


@pytest.mark.parametrize(("has_finalizer", "counts"), [(True, True), (False, False)])
def test_deleting_object_with_a_finalizer_counts_regardless_of_its_labels(*, has_finalizer: bool, counts: bool) -> None:
    watch = replace(SELECTING, finalizer=Finalizer("example.com/foo", None, {}) if has_finalizer else None)
    leaving = updated(generation=2, deletionTimestamp="2026-01-01T12:00:00Z")
    assert primary_changed(make_change(WEB, leaving), watch) is counts


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"deployment.kubernetes.io/revision": "2"}},
        {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
        {"generation": 2},
        {"managedFields": [{"manager": "somebody"}]},
    ],
)
def test_annotations_of_controllers_in_a_dependent_do_not_count(metadata: dict[str, Any]) -> None:
    assert not dependent_changed(make_change(WEB, updated(**metadata)))
