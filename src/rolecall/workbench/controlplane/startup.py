"""Starts a control plane step by step, or a single component.

The order is: credentials, etcd and the API server, then nodes and the components that work for them. Every process is
recorded as soon as it exists, so that cleaning up finds it. If a component exits during the start, the start fails at
once with the last lines of its log. The caller, ``rolecall.workbench.controlplane.cluster``, cleans up after a failure.
"""

import os
import random
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rolecall.workbench.controlplane import component_processes, components, readiness
from rolecall.workbench.controlplane.api_server import ApiServer
from rolecall.workbench.controlplane.components import HOST
from rolecall.workbench.controlplane.credentials import Credentials
from rolecall.workbench.controlplane.errors import ComponentFailedError, ControlPlaneError
from rolecall.workbench.controlplane.state import State, StateStore

READY_TIMEOUT_SECONDS = 90.0
NOTICE_SECONDS = 5.0
LOG_LINES = 15
PORT_ATTEMPTS = 5
PORTS = range(20000, 32000)  # below the range from which systems take ports for outgoing connections
PORT_TAKEN = "address already in use"
KEPT_ENVIRONMENT = ("PATH", "LANG", "TZ")

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
        """Take the state, the credentials, and the function that is called with progress messages."""
        self._store = store
        self._layout = store.layout
        self._credentials = credentials
        self._report = report

    def run(self, programs: dict[str, Path], nodes: int, *, has_controllers: bool = True) -> None:
        """Start everything in empty directories and wait until it is ready; without controllers only the API."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        self._store.create_folders()
        state = State(free_port(), nodes, {name: str(path) for name, path in programs.items()})
        self._credentials.create()
        self._credentials.write_kubeconfigs(state.port)
        self._launch(state, components.ETCD)
        server = self._start_api_server(state, deadline)
        if has_controllers:
            self._launch(state, components.KUBELET)
        readiness.create_nodes(server, nodes, state.kubelet_port)
        if has_controllers:
            readiness.create_storage_class(server)
            for component in components.CONTROLLERS:
                self._launch(state, component)
            self._wait_until_working(state, server, deadline)
        state.is_ready = True
        self._store.save(state)

    def _start_api_server(self, state: State, deadline: float, attempts: int = PORT_ATTEMPTS) -> ApiServer:
        """Start the API server; if another process takes the port first, try another port."""
        self._launch(state, components.API_SERVER)
        server = self._api_server(state)
        try:
            self._wait(state, server.is_ready, components.API_SERVER, deadline)
        except ComponentFailedError as error:
            if attempts == 1 or not any(PORT_TAKEN in line for line in error.log_lines):
                raise
        else:
            return server
        self._report(f"Port {state.port} is in use by another process; trying another port")
        state.port = free_port()
        self._credentials.write_kubeconfigs(state.port)
        return self._start_api_server(state, deadline, attempts - 1)

    def restart(self, state: State, component: str) -> None:
        """Start one component again; an API server is ready when this returns."""
        self._launch(state, component)
        if component == components.API_SERVER:
            alone = replace(state, processes={component: state.processes[component]})  # others may be down on purpose
            deadline = time.monotonic() + READY_TIMEOUT_SECONDS
            self._wait(alone, self._api_server(state).is_ready, component, deadline)

    def _api_server(self, state: State) -> ApiServer:
        return ApiServer(HOST, state.port, self._layout.certificates)

    def _wait_until_working(self, state: State, server: ApiServer, deadline: float) -> None:
        """Wait until the other components work; an error names the one that does not."""
        probe = readiness.ProbePod(server)
        self._wait(state, lambda: readiness.has_service_accounts(server), components.CONTROLLER_MANAGER, deadline)
        self._wait(state, lambda: readiness.has_ready_nodes(server, state.nodes), components.KWOK, deadline)
        self._wait(state, probe.is_running, components.SCHEDULER, deadline)
        probe.remove()

    def _wait(self, state: State, condition: Callable[[], bool], component: str, deadline: float) -> None:
        notice = time.monotonic() + NOTICE_SECONDS

        def check() -> None:
            nonlocal notice
            self._check(state)
            if time.monotonic() >= notice:
                notice += NOTICE_SECONDS
                self._report(f"  Still waiting for {component}")

        if not readiness.wait_until(condition, deadline, check):
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
        if component == components.KUBELET:
            self._launch_kubelet(state)
            return
        programs = {name: Path(path) for name, path in state.programs.items()}
        command = components.command_line(component, programs, self._layout, state.port)
        self._start(state, component, command, self._environment())

    def _launch_kubelet(self, state: State) -> None:
        """Start the kubelet endpoint on its port; connections wait in the socket's queue until it accepts them."""
        with bound_socket(state.kubelet_port or None) as listener:
            listener.listen()
            state.kubelet_port = listener.getsockname()[1]
            command = components.kubelet_command_line(state.port, listener.fileno())
            # Without HOME, Python does not find what is installed there.
            environment = self._environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._start(state, components.KUBELET, command, environment, (listener.fileno(),))

    def _start(
        self,
        state: State,
        component: str,
        command: list[str],
        environment: dict[str, str],
        inherited: tuple[int, ...] = (),
    ) -> None:
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

    def _environment(self) -> dict[str, str]:
        """Return the environment of components, without the caller's proxy, kubeconfig or home directory."""
        kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        return kept | {"HOME": str(self._layout.root)}
