"""The conditions under which a control plane is ready.

Ready means that your first request finds everything working: the API server with its roles, namespaces with their
service accounts, simulated nodes without taints, and the path from scheduling to a running pod, which a short-lived
probe pod verifies. Each condition names what it waits for, so that a start that hangs can say where.
"""

import contextlib
import http.client
import time
from collections.abc import Callable

from rolecall.workbench.controlplane import components
from rolecall.workbench.controlplane.api_server import ApiServer, Response
from rolecall.workbench.controlplane.errors import ControlPlaneError

POLL_SECONDS = 0.03
PROBE = ("kube-system", "rolecall-probe")


def wait_until(condition: Callable[[], bool], deadline: float, check: Callable[[], None]) -> bool:
    """Wait for the condition until the deadline of the monotonic clock; ``check`` runs before each poll and may raise.

    If the server does not answer, the condition counts as false.
    """
    while time.monotonic() < deadline:
        check()
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return True
        time.sleep(POLL_SECONDS)
    return False


def create(server: ApiServer, path: str, body: object) -> bool:
    """Create an object; return whether it exists, possibly from an earlier attempt."""
    response = server.request("POST", path, body)
    return response.is_success or response.status == http.HTTPStatus.CONFLICT


def node_names(count: int) -> list[str]:
    """Return the names of the simulated nodes."""
    return [f"node-{number}" for number in range(1, count + 1)]


def create_nodes(server: ApiServer, count: int, kubelet_port: int) -> None:
    """Register the simulated nodes, whose kubelet listens on this port (0: without a kubelet)."""
    for name in node_names(count):
        _create(server, "/api/v1/nodes", components.node(name, kubelet_port), f"node {name!r}")


def create_storage_class(server: ApiServer) -> None:
    """Create the default StorageClass."""
    path = "/apis/storage.k8s.io/v1/storageclasses"
    _create(server, path, components.storage_class(), "the default StorageClass")


def _create(server: ApiServer, path: str, manifest: dict[str, object], name: str) -> None:
    response = server.request("POST", path, manifest)
    if not response.is_success:
        raise ControlPlaneError(f"cannot create {name}: {response.message}")


def has_service_accounts(server: ApiServer) -> bool:
    """Return whether the controller manager has populated the default namespace."""
    return all(
        server.get(f"/api/v1/namespaces/default/{path}").is_success
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    )


def _is_ready_node(node: dict[str, object]) -> bool:
    match node:
        case {"status": {"conditions": list(conditions)}, "spec": {"taints": [_, *_]}}:
            return False
        case {"status": {"conditions": list(conditions)}}:
            return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return False


def has_ready_nodes(server: ApiServer, count: int) -> bool:
    """Return whether all nodes are ready and accept pods."""
    items = server.get("/api/v1/nodes").content.get("items", [])
    return sum(_is_ready_node(node) for node in items) >= count


class ProbePod:
    """The pod that verifies that the components work together; it is removed as soon as it runs."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._namespace, self._name = PROBE
        self._pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._is_created = False

    def is_running(self) -> bool:
        """Create the pod if it does not exist yet; return whether it runs."""
        if not self._is_created:
            self._is_created = create(self._server, self._pods, components.probe_pod(self._name, self._namespace))
            return False
        pod = self._server.get(f"{self._pods}/{self._name}").content
        return bool(pod.get("status", {}).get("phase") == "Running")

    def remove(self) -> Response:
        """Delete the pod immediately, and its events."""
        selector = f"involvedObject.name={self._name}"
        self._server.request("DELETE", f"/api/v1/namespaces/{self._namespace}/events?fieldSelector={selector}")
        return self._server.request("DELETE", f"{self._pods}/{self._name}?gracePeriodSeconds=0")
