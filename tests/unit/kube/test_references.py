import pytest

from rolecall.kube.references import GVK, ObjectKey, OwnerReference

DEPLOYMENT = GVK("apps", "v1", "Deployment")
POD = GVK("", "v1", "Pod")


@pytest.mark.parametrize(
    ("gvk", "api_version", "text"),
    [(DEPLOYMENT, "apps/v1", "apps/v1, Kind=Deployment"), (POD, "v1", "/v1, Kind=Pod")],
)
def test_a_kind_is_written_as_kubernetes_people_read_it(gvk: GVK, api_version: str, text: str) -> None:
    assert gvk.api_version == api_version
    assert str(gvk) == text
    assert GVK.of(api_version, gvk.kind) == gvk


def test_the_kind_of_an_object_is_empty_where_the_object_says_nothing() -> None:
    assert GVK.of_object({"apiVersion": "apps/v1", "kind": "Deployment"}) == DEPLOYMENT
    assert GVK.of_object({}) == GVK("", "", "")
    assert GVK.of_object({"apiVersion": None, "kind": None}) == GVK("", "", "")


def test_a_key_is_written_with_its_namespace_where_it_has_one() -> None:
    assert str(ObjectKey("default", "web")) == "default/web"
    assert str(ObjectKey("", "node-1")) == "node-1"


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"namespace": None, "name": None}}])
def test_the_key_of_an_object_without_names_is_empty(obj: dict[str, object]) -> None:
    assert ObjectKey.of_object(obj) == ObjectKey("", "")


def test_keys_are_ordered_by_namespace_then_name() -> None:
    keys = [ObjectKey("b", "a"), ObjectKey("a", "b"), ObjectKey("a", "a")]
    assert sorted(keys) == [ObjectKey("a", "a"), ObjectKey("a", "b"), ObjectKey("b", "a")]


def test_an_owner_reference_is_read_with_what_it_lacks_as_empty() -> None:
    raw = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": True}
    owner = OwnerReference.from_raw(raw)
    assert owner == OwnerReference("apps/v1", "Deployment", "web", "1", controller=True)
    assert owner.gvk == DEPLOYMENT
    assert OwnerReference.from_raw({"controller": "true"}) == OwnerReference("", "", "", "", controller=False)
