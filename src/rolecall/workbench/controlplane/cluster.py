"""The embedded control plane: start, stop, and the state in between.

A ``ControlPlane`` is identified by its name, for all processes of a user. ``start()`` returns when everything is ready,
and cleans up if it fails or is interrupted; ``stop()`` removes everything. You can stop and restart single components
on the same port, to test how a client handles an outage. The programs come from ``rolecall.workbench.controlplane.binaries``.
"""

import http.client
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rolecall.workbench.controlplane import component_processes
from rolecall.workbench.controlplane.api_server import ApiServer
from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.controlplane.components import COMPONENTS, HOST, Layout
from rolecall.workbench.controlplane.credentials import Credentials
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.controlplane.startup import Report, Startup
from rolecall.workbench.controlplane.state import State, StateStore

STOP_GRACE_SECONDS = 2.0  # an API server would wait for its watches, which never end


def _silent(_message: str) -> None:
    return


class ControlPlane:
    """A control plane of this user. As a context manager it starts and stops the control plane."""

    def __init__(
        self,
        name: str = "default",
        *,
        state_directory: Path | None = None,
        nodes: int = 1,
        report: Report = _silent,
        has_controllers: bool = True,
    ) -> None:
        """Take the directory for the state of all control planes, and the function called with progress messages.

        Without controllers only etcd and the API server are started; ``start_component`` starts the others.
        """
        if nodes < 1:
            raise ControlPlaneError(f"number of nodes: expected at least 1, found {nodes!r}")
        self._store = StateStore(name, state_directory)
        self._nodes = nodes
        self._has_controllers = has_controllers
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
        return state is not None and state.is_ready and all(self._alive(state).values())

    def state(self) -> State | None:
        """Return the saved state, None if the control plane does not exist."""
        return self._store.load()

    def _api_server(self, port: int) -> ApiServer:
        return ApiServer(HOST, port, self.layout.certificates)

    def _known_state(self) -> State:
        state = self._store.load()
        if state is None:
            raise ControlPlaneError(
                f"control plane {self.name!r} does not exist; start it with: rolecall cluster start --name {self.name}"
            )
        return state

    @staticmethod
    def _alive(state: State) -> dict[str, bool]:
        return {
            name: name in state.processes and component_processes.is_alive(state.processes[name]) for name in COMPONENTS
        }

    def start(self) -> bool:
        """Start everything and wait until it is ready. Return False if it is already running. Clean up on failure."""
        if self.is_running():
            return False
        programs = find_binaries(self._report)
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

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a new token of a service account, valid for a year, and return its path."""
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
