"""The embedded control plane as a whole: start, stop, and everything in between.

A ControlPlane is known by its name; any process of the same user that uses this name means the same one. start()
returns when everything is ready and leaves nothing behind if it fails or is interrupted; stop() leaves nothing at
all. Single components can be stopped and started again, on the same port, for tests of how a client bears it. The
programs come from rolecall.controlplane.binaries.
"""

import http.client
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rolecall.controlplane import components, processes, readiness
from rolecall.controlplane.api_server import ApiServer
from rolecall.controlplane.binaries import find_binaries
from rolecall.controlplane.components import COMPONENTS, HOST, Layout
from rolecall.controlplane.credentials import Credentials
from rolecall.controlplane.errors import ComponentFailedError, ControlPlaneError
from rolecall.controlplane.state import State, StateStore

READY_TIMEOUT_SECONDS = 90.0
STOP_GRACE_SECONDS = 2.0  # an API server would wait for its watches to end, which they never do
LOG_LINES = 15
PORT_ATTEMPTS = 5
PORTS = range(20000, 32000)  # below the range from which systems take ports for outgoing connections
PORT_TAKEN = "address already in use"
KEPT_ENVIRONMENT = ("PATH", "LANG", "TZ")

Report = Callable[[str], None]


def _silent(_message: str) -> None:
    return


def free_port() -> int:
    """Find a port of the loopback address that nobody listens on at this moment."""
    candidates = random.SystemRandom().sample(PORTS, k=200)
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ControlPlaneError(f"no free port found on {HOST} among {len(candidates)} of {PORTS.start}-{PORTS.stop - 1}")


class ControlPlane:
    """One control plane of this user, by its name; as a context manager it is started and stopped."""

    def __init__(
        self, name: str = "default", *, state_directory: Path | None = None, nodes: int = 1, report: Report = _silent
    ) -> None:
        """Take the name, the folder for all control planes' state, the number of nodes, and who hears of progress."""
        if nodes < 1:
            raise ControlPlaneError(f"number of nodes: expected at least 1, found {nodes!r}")
        self._store = StateStore(name, state_directory)
        self._nodes = nodes
        self._report = report
        self._credentials = Credentials(name, self._store.layout)

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it, whatever happened."""
        self.stop()

    @property
    def name(self) -> str:
        """The name of this control plane."""
        return self._store.name

    @property
    def layout(self) -> Layout:
        """Where its files lie."""
        return self._store.layout

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; it exists while the control plane does."""
        return self.layout.kubeconfig

    def existing_kubeconfig(self) -> Path:
        """Give the administrator's kubeconfig; ControlPlaneError if there is no such control plane."""
        self._known_state()
        return self.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{HOST}:{self._known_state().port}"

    @property
    def program_directory(self) -> Path:
        """The folder with kubectl and the other programs that this control plane was started from."""
        return Path(self._known_state().programs["kubectl"]).parent

    def is_running(self) -> bool:
        """Say whether it was started to the end and all its components are alive."""
        state = self._store.load()
        return state is not None and state.is_ready and all(self._alive(state).values())

    def state(self) -> State | None:
        """Give what is remembered of it; None if it does not exist."""
        return self._store.load()

    def _api_server(self, port: int) -> ApiServer:
        return ApiServer(HOST, port, self.layout.certificates)

    def _known_state(self) -> State:
        state = self._store.load()
        if state is None:
            raise ControlPlaneError(
                f"there is no control plane {self.name!r}; start it with: rolecall cluster start --name {self.name}"
            )
        return state

    @staticmethod
    def _alive(state: State) -> dict[str, bool]:
        return {name: name in state.processes and processes.is_alive(state.processes[name]) for name in COMPONENTS}

    def start(self) -> bool:
        """Start everything and wait until it is ready; False if it runs already. Leaves nothing behind if it fails."""
        programs = find_binaries(self._report)
        with self._store.lock():
            if self.is_running():
                return False
            if self.layout.root.exists():
                self._report(f"Removing what is left of control plane {self.name!r}")
                self._remove()
            self._report(f"Starting control plane {self.name!r}")
            try:
                self._start(programs)
            except BaseException:
                self._remove()
                raise
        return True

    def _start(self, programs: dict[str, Path]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        self._store.create_folders()
        state = State(free_port(), self._nodes, {name: str(path) for name, path in programs.items()})
        self._credentials.create()
        self._credentials.write_kubeconfigs(state.port)
        self._launch(state, components.ETCD)
        server = self._start_api_server(state, deadline)
        readiness.create_nodes(server, self._nodes)
        for component in (components.CONTROLLER_MANAGER, components.SCHEDULER, components.KWOK):
            self._launch(state, component)
        self._wait_until_working(state, server, deadline)
        state.is_ready = True
        self._store.save(state)

    def _start_api_server(self, state: State, deadline: float) -> ApiServer:
        """Start the API server; if somebody takes the port in between, with another one."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._launch(state, components.API_SERVER)
            server = self._api_server(state.port)
            try:
                self._wait(state, server.is_ready, components.API_SERVER, deadline)
            except ComponentFailedError as error:
                if attempt == PORT_ATTEMPTS or not any(PORT_TAKEN in line for line in error.log_lines):
                    raise
                self._report(f"Port {state.port} was taken in between; trying another one")
                state.port = free_port()
                self._credentials.write_kubeconfigs(state.port)
            else:
                return server
        raise AssertionError

    def _wait_until_working(self, state: State, server: ApiServer, deadline: float) -> None:
        """Wait for what the other components do; whoever does not is named."""
        probe = readiness.ProbePod(server)
        self._wait(state, lambda: readiness.has_service_accounts(server), components.CONTROLLER_MANAGER, deadline)
        self._wait(state, lambda: readiness.has_ready_nodes(server, self._nodes), components.KWOK, deadline)
        self._wait(state, probe.is_running, components.SCHEDULER, deadline)
        probe.remove()

    def _wait(self, state: State, condition: Callable[[], bool], component: str, deadline: float) -> None:
        if not readiness.wait_until(condition, deadline, lambda: self._check(state)):
            self._fail(component, f"did not get ready within {READY_TIMEOUT_SECONDS:.0f} s")

    def _check(self, state: State) -> None:
        """Raise if a component that was started has ended."""
        for component, record in state.processes.items():
            if not processes.is_alive(record):
                self._fail(component, "ended while the control plane was starting")

    def _fail(self, component: str, reason: str) -> None:
        raise ComponentFailedError(component, reason, processes.last_lines(self.layout.log(component), LOG_LINES))

    def _launch(self, state: State, component: str) -> None:
        """Start a component and remember its process."""
        programs = {name: Path(path) for name, path in state.programs.items()}
        try:
            state.processes[component] = processes.start(
                components.command_line(component, programs, self.layout, state.port),
                directory=self.layout.root,
                log=self.layout.log(component),
                environment=self._environment(),
            )
        except OSError as error:
            raise ComponentFailedError(component, f"could not be started: {error}", []) from error
        self._store.save(state)

    def _environment(self) -> dict[str, str]:
        """Give components nothing of the caller's that could lead them elsewhere: no proxy, kubeconfig or home."""
        kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        return kept | {"HOME": str(self.layout.root)}

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a new token of a service account, good for a year, and give its path."""
        port = self._known_state().port
        try:
            return self._credentials.write_service_account_kubeconfig(self._api_server(port), port, (namespace, name))
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
        """Kill at once: nothing of the state is wanted any more."""
        state = self._store.load()
        recorded = list(state.processes.values()) if state else []
        strays = processes.find_in_directory(self.layout.root, COMPONENTS)
        processes.end([*recorded, *strays], grace_seconds=0)
        self._store.remove()

    def stop_component(self, component: str) -> None:
        """End one component; the others go on."""
        state = self._known_state()
        processes.end([state.processes[component]], grace_seconds=STOP_GRACE_SECONDS)

    def start_component(self, component: str) -> None:
        """Start one component again, as it was; an API server is ready when this returns."""
        with self._store.lock():
            state = self._known_state()
            if processes.is_alive(state.processes[component]):
                return
            self._launch(state, component)
            if component == components.API_SERVER:
                server = self._api_server(state.port)
                deadline = time.monotonic() + READY_TIMEOUT_SECONDS
                self._wait(state, server.is_ready, component, deadline)
