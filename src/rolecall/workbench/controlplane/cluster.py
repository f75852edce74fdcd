"""The embedded control plane: start, stop, and the state in between.

A ``ControlPlane`` is identified by its name, for all processes of a user. ``start()`` returns when everything is ready,
and cleans up if it fails or is interrupted; ``stop()`` removes everything. You can stop and restart single components
on the same port, to test how a client handles an outage.

The order of a start is: credentials, etcd and the API server, then nodes and the components that work for them. Every
process is recorded as soon as it exists, so that a cleanup finds it. If a component exits during the start, the start
fails immediately with the last lines of its log.

Ready means that your first request finds everything working: the API server with its roles, namespaces with their
service accounts, simulated nodes without taints, and the path from scheduling to a running pod, which a short-lived
probe pod verifies. Each condition has a name, so a start that hangs reports the condition.
"""

import http.client
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rolecall.workbench.controlplane import components
from rolecall.workbench.controlplane import state as component_processes
from rolecall.workbench.controlplane.api_client import ApiClient, Response
from rolecall.workbench.controlplane.binaries import find_binaries, installed_version, kubernetes_release
from rolecall.workbench.controlplane.certificates import Credentials
from rolecall.workbench.controlplane.components import COMPONENTS, HOST, Layout
from rolecall.workbench.controlplane.download import minor_version
from rolecall.workbench.controlplane.errors import ComponentFailedError, ControlPlaneError
from rolecall.workbench.controlplane.state import State, StateStore

POLL_SECONDS = 0.03
PROBE = ("kube-system", "rolecall-probe")
KUBELET_PROGRAM = Path(__file__).with_name("kubelet.py")
STORAGE_CLASSES_PATH = "/apis/storage.k8s.io/v1/storageclasses"
READY_TIMEOUT_SECONDS = 90.0
NOTICE_SECONDS = 5.0
LOG_LINES = 15
PORT_ATTEMPTS = 5
PORTS = range(20000, 32000)  # below the range from which systems take ports for outgoing connections
PORT_TAKEN = "address already in use"
KEPT_ENVIRONMENT = ("PATH", "LANG", "TZ")
STOP_GRACE_SECONDS = 2.0  # an API server would wait for its watches, which never end


def wait_until(condition: Callable[[], bool], deadline: float, check: Callable[[], None]) -> bool:
    """Wait for the condition until the deadline of the monotonic clock; ``check`` runs before each poll and may raise.

    If the server does not answer, the condition counts as false.
    """
    while time.monotonic() < deadline:
        check()
        with suppress(OSError, http.client.HTTPException):
            if condition():
                return True
        time.sleep(POLL_SECONDS)
    return False


def create(server: ApiClient, path: str, body: object) -> bool:
    """Create an object; return whether it exists, possibly from an earlier attempt."""
    response = server.request("POST", path, body)
    return response.is_success or response.status == http.HTTPStatus.CONFLICT


def _create(server: ApiClient, path: str, manifest: dict[str, object], name: str) -> None:
    response = server.request("POST", path, manifest)
    if not response.is_success:
        raise ControlPlaneError(f"cannot create {name}: {response.message}")


def has_service_accounts(server: ApiClient) -> bool:
    """Return whether the controller manager has populated the default namespace."""
    return all(
        server.get(f"/api/v1/namespaces/default/{path}").is_success
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    )


def _is_ready_node(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    is_ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return is_ready and not node.get("spec", {}).get("taints")


def has_ready_nodes(server: ApiClient, count: int) -> bool:
    """Return whether all nodes are ready and accept pods."""
    items = server.get("/api/v1/nodes").content.get("items", [])
    return sum(_is_ready_node(node) for node in items) >= count


class ProbePod:
    """The pod that verifies that the components work together; it is removed as soon as it runs."""

    def __init__(self, server: ApiClient) -> None:
        self._server = server
        self._namespace, self._name = PROBE
        self._pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._is_created = False

    def is_running(self) -> bool:
        """Create the pod if it does not exist yet; return whether it runs."""
        if not self._is_created:
            self._is_created = create(self._server, self._pods, components.manifest("probe_pod.yaml"))
            return False
        pod = self._server.get(f"{self._pods}/{self._name}").content
        return bool(pod.get("status", {}).get("phase") == "Running")

    def remove(self) -> Response:
        """Delete the pod immediately, and its events."""
        selector = f"involvedObject.name={self._name}"
        self._server.request("DELETE", f"/api/v1/namespaces/{self._namespace}/events?fieldSelector={selector}")
        return self._server.request("DELETE", f"{self._pods}/{self._name}?gracePeriodSeconds=0")


Report = Callable[[str], None]


def free_port() -> int:
    """Return a loopback port on which no process is listening."""
    with bound_socket() as probe:
        return int(probe.getsockname()[1])


def bound_socket(port: int | None = None) -> socket.socket:
    """Return a socket that is bound to this port of the loopback interface, or to a free one."""
    candidates = random.SystemRandom().sample(PORTS, k=200) if port is None else [port]
    for candidate in candidates:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, candidate))
        except OSError:
            bound.close()
        else:
            return bound
    wanted = f"port {port}" if port else f"{len(candidates)} of {PORTS.start}-{PORTS.stop - 1}"
    raise ControlPlaneError(f"no free port found on {HOST} among {wanted}")


class Startup:
    """Start the components of one control plane."""

    def __init__(self, store: StateStore, credentials: Credentials, report: Report) -> None:
        """Take the state, the credentials, and a function to call with progress messages."""
        self._store = store
        self._layout = store.layout
        self._credentials = credentials
        self._report = report

    def run(self, programs: dict[str, Path], nodes: int, *, has_controllers: bool = True) -> None:
        """Start everything in empty directories and wait until it is ready; without controllers only the API."""
        self._store.create_directories()
        paths = {name: str(path) for name, path in programs.items()}
        state = State(free_port(), nodes, paths, keeps_history=not has_controllers)
        self._credentials.create()
        self._credentials.write_kubeconfigs(state.port)
        self._launch(state, components.ETCD)
        server = self._start_api_server(state)
        if has_controllers:
            self._launch(state, components.KUBELET)
        for name in (f"node-{number}" for number in range(1, nodes + 1)):
            _create(server, "/api/v1/nodes", components.node(name, state.kubelet_port), f"node {name!r}")
        if has_controllers:
            storage_class = components.manifest("storage_class.yaml")
            _create(server, STORAGE_CLASSES_PATH, storage_class, "the default StorageClass")
            webhook = components.webhooks(self._layout, state.kubelet_port)[0]
            _create(server, components.WEBHOOKS_PATH, webhook, "the webhook for responses of pods")
            for component in components.CONTROLLERS:
                self._launch(state, component)
            self._wait_until_working(state, server)
        state.is_ready = True
        self._store.save(state)

    def _start_api_server(self, state: State, attempts: int = PORT_ATTEMPTS) -> ApiClient:
        """Start the API server; if another process takes the port first, try another port."""
        self._launch(state, components.API_SERVER)
        server = self._api_server(state)
        try:
            self._wait(state, server.is_ready, components.API_SERVER)
        except ComponentFailedError as error:
            if attempts == 1 or not any(PORT_TAKEN in line for line in error.log_lines):
                raise
        else:
            return server
        self._report(f"Port {state.port} is in use by another process; trying another port")
        state.port = free_port()
        self._credentials.write_kubeconfigs(state.port)
        return self._start_api_server(state, attempts - 1)

    def restart(self, state: State, component: str) -> None:
        """Start one component again; an API server is ready when this returns."""
        self._launch(state, component)
        if component == components.API_SERVER:
            alone = replace(state, processes={component: state.processes[component]})  # others may be down on purpose
            self._wait(alone, self._api_server(state).is_ready, component)

    def _api_server(self, state: State) -> ApiClient:
        return ApiClient(HOST, state.port, self._layout.certificates)

    def _wait_until_working(self, state: State, server: ApiClient) -> None:
        """Wait until the other components work; an error names the one that does not."""
        probe = ProbePod(server)
        self._wait(state, lambda: has_service_accounts(server), components.CONTROLLER_MANAGER)
        self._wait(state, lambda: has_ready_nodes(server, state.nodes), components.KWOK)
        self._wait(state, probe.is_running, components.SCHEDULER)
        probe.remove()

    def _wait(self, state: State, condition: Callable[[], bool], component: str) -> None:
        """Wait until a component is ready. Each has its own limit, so slow ones don't use up the time of others."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        notice = time.monotonic() + NOTICE_SECONDS

        def check() -> None:
            nonlocal notice
            self._check(state)
            if time.monotonic() >= notice:
                notice += NOTICE_SECONDS
                self._report(f"  Still waiting for {component}")

        if not wait_until(condition, deadline, check):
            self._fail(component, f"did not become ready within {READY_TIMEOUT_SECONDS:.0f} s")

    def _check(self, state: State) -> None:
        """Raise ComponentFailedError if a component has exited."""
        for component, record in state.processes.items():
            if not component_processes.is_alive(record):
                self._fail(component, "exited while the control plane was starting")

    def _fail(self, component: str, reason: str) -> None:
        raise ComponentFailedError(
            component, reason, component_processes.last_lines(self._layout.log(component), LOG_LINES)
        )

    def _launch(self, state: State, component: str) -> None:
        """Start a component and record its process."""
        # Without the caller's proxy, kubeconfig and home directory.
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        environment["HOME"] = str(self._layout.root)
        with ExitStack() as stack:
            inherited = []
            if component == components.KUBELET:  # connections wait in the queue of its socket
                listener = stack.enter_context(bound_socket(state.kubelet_port or None))
                listener.listen()
                inherited.append(listener.fileno())
                state.kubelet_port = listener.getsockname()[1]
                command = [sys.executable, "-P", str(KUBELET_PROGRAM), str(state.port), str(listener.fileno())]
                # Without HOME, Python does not find what is installed there.
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            else:
                command = components.command_line(
                    component, state.programs, self._layout, state.port, keeps_history=state.keeps_history
                )
            try:
                state.processes[component] = component_processes.start(
                    command,
                    directory=self._layout.root,
                    log=self._layout.log(component),
                    environment=environment,
                    inherited=inherited,
                )
            except OSError as error:
                raise ComponentFailedError(component, f"could not be started: {error}", []) from error
        self._store.save(state)


class ControlPlane:
    """A control plane of this user. As a context manager it starts and stops the control plane."""

    def __init__(  # noqa: PLR0913 - all but the name are keywords
        self,
        name: str = "default",
        *,
        state_directory: Path | None = None,
        nodes: int = 1,
        report: Report = lambda _: None,
        has_controllers: bool = True,
        kubernetes: str = "",
    ) -> None:
        """Take the directory for the state of all control planes, and the function called with progress messages.

        ``kubernetes`` is a minor version such as 1.34; see ``find_binaries`` for the default.
        Without controllers only etcd and the API server are started; ``start_component`` starts the others. etcd then
        keeps all its revisions, because they are the snapshots of a sandbox.
        """
        if nodes < 1:
            raise ControlPlaneError(f"number of nodes: expected at least 1, found {nodes!r}")
        self._store = StateStore(name, state_directory)
        self._nodes = nodes
        self._has_controllers = has_controllers
        self._kubernetes = kubernetes
        self._report = report
        self._credentials = Credentials(name, self._store.layout)
        self._startup = Startup(self._store, self._credentials, report)

    def __enter__(self) -> Self:
        """Start the control plane."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the control plane."""
        self.stop()

    @property
    def name(self) -> str:
        """The name of this control plane."""
        return self._store.name

    @property
    def layout(self) -> Layout:
        """The paths of its files."""
        return self._store.layout

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; the file exists as long as the control plane."""
        return self.layout.kubeconfig

    def existing_kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig. Raise ControlPlaneError if the control plane does not exist."""
        self._known_state()
        return self.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{HOST}:{self._known_state().port}"

    @property
    def program_directory(self) -> Path:
        """The directory with kubectl and the other programs of this control plane."""
        return Path(self._known_state().programs["kubectl"]).parent

    def is_running(self) -> bool:
        """Return whether the start is complete and all components are running."""
        state = self._store.load()
        return (
            state is not None
            and state.is_ready
            and all(
                name in state.processes and component_processes.is_alive(state.processes[name]) for name in COMPONENTS
            )
        )

    def state(self) -> State | None:
        """Return the saved state, None if the control plane does not exist."""
        return self._store.load()

    def _known_state(self) -> State:
        state = self._store.load()
        if state is None:
            raise ControlPlaneError(
                f"control plane {self.name!r} does not exist; start it with: rolecall cluster start --name {self.name}"
            )
        return state

    def start(self) -> bool:
        """Start everything and wait until it is ready. Return False if it is already running. Clean up on failure."""
        if self.is_running():
            self._check_version()
            return False
        programs = find_binaries(self._report, kubernetes=self._kubernetes)
        with self._store.lock():
            if self.is_running():
                return False
            if self.layout.root.exists():
                self._report(f"Removing the remains of control plane {self.name!r}")
                self._remove()
            self._report(f"Starting control plane {self.name!r}")
            try:
                self._startup.run(programs, self._nodes, has_controllers=self._has_controllers)
            except BaseException:
                self._remove()
                raise
        return True

    def _check_version(self) -> None:
        """Raise ControlPlaneError if the running control plane doesn't have the requested version of Kubernetes."""
        if not self._kubernetes:
            return
        wanted = minor_version(kubernetes_release(self._kubernetes))
        found = installed_version(Path(self._known_state().programs[components.API_SERVER]))
        if found not in (None, wanted):
            raise ControlPlaneError(
                f"control plane {self.name!r} is running, but not with Kubernetes {self._kubernetes}; stop it with: "
                f"rolecall cluster stop --name {self.name}"
            )

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a new token of a service account, valid for a year, and return its path."""
        port = self._known_state().port
        try:
            server = ApiClient(HOST, port, self.layout.certificates)
            return self._credentials.write_service_account_kubeconfig(server, port, (namespace, name))
        except (OSError, http.client.HTTPException) as error:
            raise ControlPlaneError(f"control plane {self.name!r} does not answer at {self.server}: {error}") from error

    def stop(self) -> bool:
        """End all processes and remove the state; False if there was nothing."""
        if not self.layout.root.exists():
            return False
        with self._store.lock():
            self._remove()
        self._store.remove_base_if_empty()
        return True

    def _remove(self) -> None:
        """Kill all components without a grace period, and remove the state."""
        recorded = []
        with suppress(ControlPlaneError):  # without a readable state, processes are found by their directory
            state = self._store.load()
            recorded = list(state.processes.values()) if state else []
        strays = component_processes.find_in_directory(self.layout.root, COMPONENTS)
        component_processes.end([*recorded, *strays], grace_seconds=0)
        self._store.remove()

    def stop_component(self, component: str, grace_seconds: float = STOP_GRACE_SECONDS) -> None:
        """Stop one component, with 0 seconds by killing it; the others keep running."""
        state = self._known_state()
        if component in state.processes:
            component_processes.end([state.processes[component]], grace_seconds=grace_seconds)

    def start_component(self, component: str) -> None:
        """Start a stopped component again; an API server is ready when this returns."""
        with self._store.lock():
            state = self._known_state()
            if component in state.processes and component_processes.is_alive(state.processes[component]):
                return
            self._startup.restart(state, component)
