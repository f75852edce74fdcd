from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.seen_objects import is_own, seen_object

OWNER = Owner(GVK("e.com", "v1", "Shop"), ObjectKey("ns", "shop"), "owner-uid", namespaced=True)
REFERENCE = {"apiVersion": "e.com/v1", "kind": "Shop", "name": "shop", "uid": "owner-uid"}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "other-uid"}
BY_ANNOTATION = {"operator-sdk/primary-resource": "ns/shop", "operator-sdk/primary-resource-type": "Shop.e.com"}


def obj(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "namespace": "ns", "uid": "a-uid", **metadata}}


def request(group: str, resource: str) -> RequestInfo:
    return RequestInfo("list", is_resource=True, group=group, version="v1", namespace="ns", resource=resource)


MARK = "owner-uid:/Service:ns/a"


def marked(mark: str = MARK, **metadata: Any) -> dict[str, Any]:
    """Return an object with a mark."""
    annotations = {"rolecall.dev/made-for": mark, **metadata.pop("annotations", {})}
    return obj(**metadata, annotations=annotations)


@pytest.mark.parametrize("mark", [MARK, f"{MARK}:a-uid"])
@pytest.mark.parametrize("metadata", [{"ownerReferences": [REFERENCE]}, {"annotations": BY_ANNOTATION}])
def test_object_that_was_made_for_the_primary_and_names_only_it_is_its_own(mark: str, metadata: dict[str, Any]) -> None:
    assert is_own(marked(mark, **metadata), OWNER, "", "Service")


@pytest.mark.parametrize(
    "mark",
    [
        "",
        "owner-uid",
        "predecessor:/Service:ns/a",
        "owner-uid:/ConfigMap:ns/a",
        "owner-uid:other/Service:ns/a",
        "owner-uid:/Service:ns/b",
        "owner-uid:/Service:elsewhere/a",
        "owner-uid:/Service:ns/a:uid-of-its-predecessor",
        "owner-uid:/Service:ns/a:",
    ],
)
def test_mark_that_does_not_name_the_primary_and_the_object_itself_does_not_count(mark: str) -> None:
    """So a copy of an object, of any kind and with any name, is nobody's own."""
    assert not is_own(marked(mark, ownerReferences=[REFERENCE]), OWNER, "", "Service")


def test_other_kinds_are_own_only_with_the_word_of_their_author_and_some_never() -> None:
    word = {"rolecall.dev/prune": "true"}
    for kind, annotations, expected in (
        ("Secret", {}, False),
        ("Secret", word, True),
        ("PersistentVolumeClaim", word, False),
        ("Namespace", word, False),
    ):
        each = marked(f"owner-uid:/{kind}:ns/a", ownerReferences=[REFERENCE], annotations=annotations)
        assert is_own(each, OWNER, "", kind) is expected


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"ownerReferences": [OTHER]},
        {"ownerReferences": [REFERENCE, OTHER]},
        {"ownerReferences": [REFERENCE | {"uid": "predecessor"}]},
        {"annotations": BY_ANNOTATION, "ownerReferences": [OTHER]},
        {"ownerReferences": [REFERENCE], "annotations": {"rolecall.dev/prune": "false"}},
        {"ownerReferences": [REFERENCE], "annotations": {"rolecall.dev/adopt": "true"}},
        {"ownerReferences": [REFERENCE], "annotations": {"meta.helm.sh/release-name": "x"}},
        {"ownerReferences": [REFERENCE], "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        {"ownerReferences": [REFERENCE], "deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
)
def test_object_of_others_is_not_its_own(metadata: dict[str, Any]) -> None:
    assert not is_own(marked(**metadata), OWNER, "", "Service")


WAITING = [
    ("apps", "deployments", {"spec": {"replicas": 2}, "status": {"replicas": 2, "updatedReplicas": 1}}),
    ("apps", "statefulsets", {"spec": {"replicas": 1}, "status": {}}),
    ("", "pods", {"status": {"phase": "Pending"}}),
    ("", "persistentvolumeclaims", {"status": {"phase": "Pending"}}),
    ("batch", "jobs", {"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}}),
    ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Available", "status": "False"}]}}),
    ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Progressing", "status": "True"}]}}),
    ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Updating", "status": "True"}]}}),
    ("e.com", "databases", {"kind": "Database", "status": {"phase": "Creating"}}),
    ("", "endpoints", {"subsets": [{"notReadyAddresses": [{"ip": "10.0.0.1"}]}]}),
    ("", "endpoints", {}),
    ("discovery.k8s.io", "endpointslices", {"endpoints": [{"conditions": {"ready": False}}]}),
]


@pytest.mark.parametrize(("group", "resource", "content"), WAITING)
def test_object_that_is_not_ready_waits(group: str, resource: str, content: dict[str, Any]) -> None:
    assert seen_object(request(group, resource), {**obj(), **content}, OWNER, now=0.0).waits_for


@pytest.mark.parametrize(
    ("group", "resource", "content"),
    [
        ("", "configmaps", {"data": {}}),
        ("", "services", {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {}}}),
        ("", "endpoints", {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}),
        ("discovery.k8s.io", "endpointslices", {"endpoints": [{"addresses": ["10.0.0.1"]}]}),
        ("e.com", "databases", {"kind": "Database", "status": {"phase": "Running"}}),
        ("e.com", "databases", {"kind": "Database", "status": {"phase": 5, "conditions": [5, {"type": "x"}]}}),
        ("batch", "jobs", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
        ("e.com", "databases", {"kind": "Database", "status": "anything"}),
        ("e.com", "databases", {"kind": "Database", "status": {"conditions": 5}}),
        ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ],
)
def test_object_that_is_ready_does_not_wait(group: str, resource: str, content: dict[str, Any]) -> None:
    assert not seen_object(request(group, resource), {**obj(), **content}, OWNER, now=0.0).waits_for


def test_object_that_was_made_for_another_primary_names_it_but_not_the_primary_of_the_run() -> None:
    """A primary that the run of another one has made doesn't use itself."""
    info = request("", "services")
    assert seen_object(info, marked("other-uid:/Service:ns/a"), OWNER, now=0.0).made_for == "other-uid"
    assert not seen_object(info, marked(), OWNER, now=0.0).made_for
    copied = {**marked("other-uid:apps/Deployment:ns/a"), "kind": "ReplicaSet"}  # by the Deployment's controller
    assert not seen_object(request("apps", "replicasets"), copied, OWNER, now=0.0).made_for
    assert not seen_object(info, marked("other-uid:e.com/Shop:ns/a", uid="owner-uid"), OWNER, now=0.0).made_for


def test_primary_does_not_wait_for_its_own_run() -> None:
    primary = {
        **obj(uid="owner-uid"),
        "kind": "Shop",
        "status": {"conditions": [{"type": "Reconciling", "status": "True"}]},
    }
    assert not seen_object(request("e.com", "shops"), primary, OWNER, now=0.0).waits_for
