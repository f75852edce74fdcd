"""When a control plane counts as ready.

Ready means that a user's first request finds everything at work: the API server with its roles, the namespaces with
their service accounts, simulated nodes without taints, and the whole chain from scheduling to running, which a
short-lived pod of our own shows. Each step names what it waits for, so that a start that hangs can say where. The
steps are taken by rolecall.controlplane.cluster.
"""

import contextlib
import http.client
import time
from collections.abc import Callable

from rolecall.controlplane import components
from rolecall.controlplane.api_server import ApiServer, Response
from rolecall.controlplane.errors import ControlPlaneError

POLL_SECONDS = 0.03
PROBE = ("kube-system", "rolecall-probe")


def wait_until(condition: Callable[[], bool], deadline: float, check: Callable[[], None]) -> bool:
    """Wait for the condition until the deadline of the monotonic clock; check runs before every look and may raise.

    A server that does not answer makes the condition false, not an error.
    """
    while time.monotonic() < deadline:
        check()
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return True
        time.sleep(POLL_SECONDS)
    return False


def create(server: ApiServer, path: str, body: object) -> bool:
    """Create an object; say whether it is there, be it from an earlier attempt."""
    response = server.request("POST", path, body)
    return response.is_success or response.status == http.HTTPStatus.CONFLICT


def node_names(count: int) -> list[str]:
    """Name the simulated nodes."""
    return [f"node-{number}" for number in range(1, count + 1)]


def create_nodes(server: ApiServer, count: int) -> None:
    """Register the simulated nodes."""
    for name in node_names(count):
        response = server.request("POST", "/api/v1/nodes", components.node(name))
        if not response.is_success:
            raise ControlPlaneError(f"node {name!r} could not be created: {response.message}")


def has_service_accounts(server: ApiServer) -> bool:
    """Say whether the controller manager has filled the default namespace."""
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
    """Say whether all nodes are ready and take pods."""
    items = server.get("/api/v1/nodes").content.get("items", [])
    return sum(_is_ready_node(node) for node in items) >= count


class ProbePod:
    """The pod that proves that the components work together; it is removed as soon as it ran."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._namespace, self._name = PROBE
        self._pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._is_created = False

    def is_running(self) -> bool:
        """Create the pod if it could not be created yet; say whether it runs."""
        if not self._is_created:
            self._is_created = create(self._server, self._pods, components.probe_pod(self._name, self._namespace))
            return False
        pod = self._server.get(f"{self._pods}/{self._name}").content
        return bool(pod.get("status", {}).get("phase") == "Running")

    def remove(self) -> Response:
        """Delete the pod at once, and the events about it."""
        selector = f"involvedObject.name={self._name}"
        self._server.request("DELETE", f"/api/v1/namespaces/{self._namespace}/events?fieldSelector={selector}")
        return self._server.request("DELETE", f"{self._pods}/{self._name}?gracePeriodSeconds=0")
