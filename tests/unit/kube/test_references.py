import pytest

from rolecall.kube.references import GVK, ObjectKey, OwnerReference

DEPLOYMENT = GVK("apps", "v1", "Deployment")
POD = GVK("", "v1", "Pod")


@pytest.mark.parametrize(
    ("gvk", "api_version", "text"),
    [(DEPLOYMENT, "apps/v1", "apps/v1, Kind=Deployment"), (POD, "v1", "/v1, Kind=Pod")],
)
def test_text_of_kind_is_that_of_kubernetes(gvk: GVK, api_version: str, text: str) -> None:
    assert gvk.api_version == api_version
    assert str(gvk) == text
    assert GVK.of(api_version, gvk.kind) == gvk


def test_missing_fields_of_kind_are_empty() -> None:
    assert GVK.of_object({"apiVersion": "apps/v1", "kind": "Deployment"}) == DEPLOYMENT
    assert GVK.of_object({}) == GVK("", "", "")
    assert GVK.of_object({"apiVersion": None, "kind": None}) == GVK("", "", "")


def test_text_of_key_has_namespace_if_any() -> None:
    assert str(ObjectKey("default", "web")) == "default/web"
    assert str(ObjectKey("", "node-1")) == "node-1"


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"namespace": None, "name": None}}])
def test_key_of_object_without_names_is_empty(obj: dict[str, object]) -> None:
    assert ObjectKey.of_object(obj) == ObjectKey("", "")


def test_keys_are_ordered_by_namespace_then_name() -> None:
    keys = [ObjectKey("b", "a"), ObjectKey("a", "b"), ObjectKey("a", "a")]
    assert sorted(keys) == [ObjectKey("a", "a"), ObjectKey("a", "b"), ObjectKey("b", "a")]


def test_missing_fields_of_owner_reference_are_empty() -> None:
    raw = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": True}
    owner = OwnerReference.from_raw(raw)
    assert owner == OwnerReference("apps/v1", "Deployment", "web", "1", controller=True)
    assert owner.gvk == DEPLOYMENT
    assert OwnerReference.from_raw({"controller": "true"}) == OwnerReference("", "", "", "", controller=False)
