"""A workload gets the status with which waiters for it end."""

from typing import Any

import pytest

from rolecall.kube.references import GVK
from rolecall.workbench.explore.instant_controllers import ready_status
from rolecall.workbench.plan import convergence


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
