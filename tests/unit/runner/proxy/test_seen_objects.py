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


@pytest.mark.parametrize("metadata", [{"ownerReferences": [REFERENCE]}, {"annotations": BY_ANNOTATION}])
def test_object_that_names_only_the_primary_is_its_own(metadata: dict[str, Any]) -> None:
    assert is_own(obj(**metadata), OWNER)


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
    assert not is_own(obj(**metadata), OWNER)


WAITING = [
    ("apps", "deployments", {"spec": {"replicas": 2}, "status": {"replicas": 2, "updatedReplicas": 1}}),
    ("apps", "statefulsets", {"spec": {"replicas": 1}, "status": {}}),
    ("", "pods", {"status": {"phase": "Pending"}}),
    ("", "persistentvolumeclaims", {"status": {"phase": "Pending"}}),
    ("batch", "jobs", {"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}}),
    ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
]


@pytest.mark.parametrize(("group", "resource", "content"), WAITING)
def test_object_that_is_not_ready_waits(group: str, resource: str, content: dict[str, Any]) -> None:
    assert seen_object(request(group, resource), {**obj(), **content}, OWNER, now=0.0).waits_for


@pytest.mark.parametrize(
    ("group", "resource", "content"),
    [
        ("", "configmaps", {"data": {}}),
        ("batch", "jobs", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
        ("e.com", "databases", {"kind": "Database", "status": "anything"}),
        ("e.com", "databases", {"kind": "Database", "status": {"conditions": 5}}),
        ("e.com", "databases", {"kind": "Database", "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ],
)
def test_object_that_is_ready_does_not_wait(group: str, resource: str, content: dict[str, Any]) -> None:
    assert not seen_object(request(group, resource), {**obj(), **content}, OWNER, now=0.0).waits_for


def test_primary_does_not_wait_for_its_own_run() -> None:
    primary = {
        **obj(uid="owner-uid"),
        "kind": "Shop",
        "status": {"conditions": [{"type": "Reconciling", "status": "True"}]},
    }
    assert not seen_object(request("e.com", "shops"), primary, OWNER, now=0.0).waits_for
