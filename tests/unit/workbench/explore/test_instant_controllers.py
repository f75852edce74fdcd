"""A workload gets the status with which waiters for it end."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rolecall.kube.client import Page, Selection
from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.explore.instant_controllers import InstantControllers, ready_status
from rolecall.workbench.plan import convergence
from tests.unit.fake_cluster import FakeCluster

NAMESPACE, ACCOUNT = GVK("", "v1", "Namespace"), GVK("", "v1", "ServiceAccount")


class StaleLists(FakeCluster):
    """A cluster whose lists show the namespaces ``one`` and ``two``, and none of their service accounts."""

    async def list_pages(
        self, gvk: GVK, namespace: str | None = None, selection: Selection | None = None
    ) -> AsyncIterator[Page]:
        """Yield one page."""
        del namespace, selection
        yield [{"metadata": {"name": each}} for each in ("one", "two") if gvk == NAMESPACE], ""


async def test_service_account_that_another_client_has_created_is_no_error() -> None:
    cluster = StaleLists()
    metadata = {"name": "default", "namespace": "one"}
    await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await InstantControllers(plane=ControlPlane("unused"), client=cluster).need()
    assert set(cluster.objects()) == {(ACCOUNT, ObjectKey(each, "default")) for each in ("one", "two")}


@pytest.mark.parametrize(
    ("group", "kind", "plural"),
    [
        ("", "Pod", "pods"),
        ("", "ReplicationController", "replicationcontrollers"),
        ("apps", "Deployment", "deployments"),
        ("apps", "ReplicaSet", "replicasets"),
        ("apps", "StatefulSet", "statefulsets"),
        ("apps", "DaemonSet", "daemonsets"),
        ("batch", "Job", "jobs"),
    ],
)
@pytest.mark.parametrize("spec", [{}, {"replicas": 0}, {"replicas": 3}])
def test_ready_workload_needs_no_more_work_of_controllers(
    group: str, kind: str, plural: str, spec: dict[str, Any]
) -> None:
    obj = {"metadata": {"generation": 4}, "spec": spec}
    assert convergence.is_done(GVK(group, "v1", kind), obj | {"status": ready_status(plural, obj)})
