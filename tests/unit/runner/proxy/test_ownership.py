import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.metadata import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import (
    Owner,
    Ownership,
    ownership_of,
    target_ownership,
    with_kept,
    with_owner,
)
from tests.unit.json_values import JSON

NAMESPACED = Owner(GVK("demo.example.com", "v1", "Demo"), ObjectKey("ns", "one"), "u1", namespaced=True)
CLUSTER_SCOPED = Owner(GVK("demo.example.com", "v1", "Fleet"), ObjectKey("", "all"), "u2", namespaced=False)
OF_CORE_GROUP = Owner(GVK("", "v1", "Secret"), ObjectKey("ns", "s"), "u3", namespaced=True)
REFERENCE = {"apiVersion": "demo.example.com/v1", "kind": "Demo", "name": "one", "uid": "u1"}


@pytest.mark.parametrize(
    ("owner", "namespace", "expected"),
    [
        (CLUSTER_SCOPED, "", Ownership.OWNER_REFERENCE),
        (CLUSTER_SCOPED, "ns", Ownership.OWNER_REFERENCE),
        (NAMESPACED, "", Ownership.ANNOTATION),
        (NAMESPACED, "ns", Ownership.OWNER_REFERENCE),
        (NAMESPACED, "other", Ownership.ANNOTATION),
    ],
)
def test_ownership_depends_on_scopes(owner: Owner, namespace: str, expected: Ownership) -> None:
    assert target_ownership(owner, namespace, {}, None) is expected


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"ownerReferences": None}}])
def test_owner_reference_has_four_fields(obj: RawObject) -> None:
    assert with_owner(obj, NAMESPACED, Ownership.OWNER_REFERENCE)["metadata"]["ownerReferences"] == [REFERENCE]


def test_owner_reference_is_appended() -> None:
    other = {"uid": "other"}
    changed = with_owner({"metadata": {"ownerReferences": [other]}}, NAMESPACED, Ownership.OWNER_REFERENCE)
    assert changed["metadata"]["ownerReferences"] == [other, REFERENCE]


def test_owner_reference_of_role_is_unchanged() -> None:
    mine = REFERENCE | {"controller": True, "blockOwnerDeletion": True}
    obj = {"metadata": {"ownerReferences": [mine]}}
    assert with_owner(obj, NAMESPACED, Ownership.OWNER_REFERENCE) is obj


def test_annotations_contain_key_and_kind() -> None:
    obj = {"metadata": {"annotations": {"a": "b", "operator-sdk/primary-resource": "old/one"}}}
    assert with_owner(obj, NAMESPACED, Ownership.ANNOTATION)["metadata"]["annotations"] == {
        "a": "b",
        "operator-sdk/primary-resource": "ns/one",
        "operator-sdk/primary-resource-type": "Demo.demo.example.com",
    }


def test_kind_in_core_group_has_no_dot() -> None:
    changed = with_owner({}, OF_CORE_GROUP, Ownership.ANNOTATION)
    assert changed["metadata"]["annotations"]["operator-sdk/primary-resource-type"] == "Secret"
    assert ownership_of(changed, OF_CORE_GROUP) is Ownership.ANNOTATION


@pytest.mark.parametrize("ownership", Ownership)
def test_object_has_only_the_added_owner(ownership: Ownership) -> None:
    changed = with_owner({"metadata": {"name": "x"}}, NAMESPACED, ownership)
    assert ownership_of(changed, NAMESPACED) is ownership
    twin = Owner(NAMESPACED.gvk, ObjectKey("ns", "two"), "u9", namespaced=True)
    assert ownership_of(changed, twin) is None


@pytest.mark.parametrize(
    "obj",
    [
        {"metadata": "text"},
        {"metadata": {"ownerReferences": {"uid": "u"}, "annotations": []}},
        {"metadata": {"ownerReferences": "x", "annotations": 1}},
    ],
)
@pytest.mark.parametrize("ownership", Ownership)
def test_malformed_metadata_is_rejected(obj: RawObject, ownership: Ownership) -> None:
    with pytest.raises(ValueError, match="expected a"):
        with_owner(obj, NAMESPACED, ownership)


@pytest.mark.parametrize(
    ("gvk", "key", "expected"),
    [
        (GVK("demo.example.com", "v1", "Demo"), ObjectKey("ns", "one"), True),
        (GVK("demo.example.com", "v2", "Demo"), ObjectKey("ns", "one"), True),
        (GVK("demo.example.com", "v1", "Demo"), ObjectKey("ns", ""), False),
        (GVK("demo.example.com", "v1", "Demo"), ObjectKey("other", "one"), False),
        (GVK("other.example.com", "v1", "Demo"), ObjectKey("ns", "one"), False),
    ],
)
def test_primary_is_recognized_in_any_version(gvk: GVK, key: ObjectKey, expected: bool) -> None:  # noqa: FBT001 - a table
    assert NAMESPACED.refers_to(gvk, key) is expected


@pytest.mark.parametrize(
    ("value", "of_existing", "of_new"),
    [
        ("true", Ownership.OWNER_REFERENCE, Ownership.OWNER_REFERENCE),
        ("True", None, Ownership.OWNER_REFERENCE),
        ("false", None, None),
        (True, None, Ownership.OWNER_REFERENCE),
    ],
)
def test_only_true_requests_adoption(value: object, of_existing: Ownership | None, of_new: Ownership | None) -> None:
    obj = {"metadata": {"annotations": {"rolecall.dev/adopt": value}}}
    assert target_ownership(NAMESPACED, "ns", obj, {}) is of_existing
    assert target_ownership(NAMESPACED, "ns", obj, None) is of_new


METADATA = st.fixed_dictionaries(
    {},
    optional={
        "annotations": JSON,
        "ownerReferences": JSON | st.lists(st.fixed_dictionaries({"uid": st.sampled_from(["u1", "x"])}), max_size=3),
        "name": JSON,
    },
)


@given(st.fixed_dictionaries({}, optional={"metadata": METADATA | JSON}), st.sampled_from(Ownership))
def test_any_object_is_rejected_or_owned_but_never_modified(obj: Any, ownership: Ownership) -> None:
    before = copy.deepcopy(obj)
    try:
        changed = with_owner(obj, NAMESPACED, ownership)
    except ValueError:
        changed = None
    assert obj == before
    assert changed is None or ownership_of(changed, NAMESPACED) is not None


OWNERS: list[dict[str, Any]] = [REFERENCE, REFERENCE | {"controller": True}, {"uid": "x"}, {"uid": "y"}]
REFERENCES = st.lists(st.sampled_from(OWNERS), max_size=3, unique_by=lambda reference: str(reference["uid"]))
ANNOTATIONS = st.dictionaries(st.sampled_from([PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION, "other"]), st.text())


@given(
    st.fixed_dictionaries({}, optional={"ownerReferences": REFERENCES, "annotations": ANNOTATIONS}),
    REFERENCES,
    ANNOTATIONS,
    st.sampled_from([None, *Ownership]),
)
def test_a_body_names_all_owners_but_those_that_it_decides_about(
    metadata: dict[str, Any], existing: list[Any], annotations: dict[str, str], ownership: Ownership | None
) -> None:
    body = {"metadata": copy.deepcopy(metadata)}
    kept = with_kept(body, existing, annotations, NAMESPACED)
    assert body == {"metadata": metadata}
    assert with_kept(kept, existing, annotations, NAMESPACED) == kept
    given_references = metadata.get("ownerReferences")
    sent = kept["metadata"].get("ownerReferences", [])
    if given_references is None:
        assert sent == existing
    elif given_references and all(each["uid"] == NAMESPACED.uid for each in given_references):
        assert sent[-1] == given_references[-1]
        assert {each["uid"] for each in sent} == {each["uid"] for each in [*existing, *given_references]}
    else:
        assert sent == given_references

    own, found = metadata.get("annotations", {}), kept["metadata"].get("annotations", {})
    decides = not own.keys().isdisjoint({PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION})
    repeated = {} if decides else {name: value for name, value in annotations.items() if name != "other"}
    assert found == {name: value for name, value in annotations.items() if name == "other"} | repeated | own
    owned = kept if ownership is None else with_owner(kept, NAMESPACED, ownership)
    uids = [each["uid"] for each in owned["metadata"].get("ownerReferences", [])]
    assert len(set(uids)) == len(uids)
    assert {each["uid"] for each in sent} <= set(uids)
