"""Where a task runs: in the process of ansible-playbook or in a worker process.

A task may start in the process of ansible-playbook and turn out to need a worker. It is then abandoned and restarts in
a worker. The worker receives the results of the modules that have run already, so that nothing is done twice.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_LOCAL = "ansible.plugins.connection.local"
_SHELL = "ansible.plugins.shell.sh"
_EXECUTABLE = "/bin/sh"


class NeedsWorker(BaseException):
    """Unwinds a task that needs a worker; not an error, so that no handler of Ansible's catches it."""


class ModuleResult(NamedTuple):
    """How the process of a module ended: the exit code as a shell reports it, stdout and stderr."""

    code: int
    out: bytes
    err: bytes


class TaskPlacement:
    """Where the current task of this process runs, and the results of its modules so far."""

    def __init__(self) -> None:
        self.is_in_process = False
        """Whether the task runs in the process of ansible-playbook."""
        self._results: deque[tuple[str, ModuleResult]] = deque()

    @contextmanager
    def in_process(self) -> Iterator[None]:
        """Run a task in the process of ansible-playbook; its results are kept only if it has to restart in a worker."""
        self.is_in_process = True
        try:
            yield
            # The next task may start in a worker and must not find these results.
            self._results.clear()
        finally:
            self.is_in_process = False

    @contextmanager
    def in_worker(self) -> Iterator[None]:
        """Start a worker, which finds the results that the same task has recorded."""
        try:
            yield
        finally:
            self._results.clear()

    def require_worker(self, reason: str) -> None:
        """Return if this is a worker. Raises NeedsWorker if not."""
        if self.is_in_process:
            raise NeedsWorker(reason)

    def record_result(self, module: str, result: ModuleResult) -> None:
        """Record the result of a module, unless this is a worker."""
        if self.is_in_process:
            self._results.append((module, result))

    def recorded_result(self, module: str) -> ModuleResult | None:
        """Return the result of a module that this task has run before it needed a worker; None if there is none."""
        if self.is_in_process or not self._results or self._results[0][0] != module:
            return None
        return self._results.popleft()[1]


def reason_not_local(action: Any) -> str:
    """Return why a task doesn't run on this host, as this user, with /bin/sh; an empty string if it does."""
    connection = action._connection  # noqa: SLF001 - no public way
    executable = action._play_context.executable  # noqa: SLF001 - no public way
    if type(connection).__module__ != _LOCAL:
        return f"its connection is {connection.transport}"
    if connection.become is not None:
        return "it runs as another user"
    if type(connection._shell).__module__ != _SHELL or executable != _EXECUTABLE:  # noqa: SLF001 - no public way
        return f"its shell is {executable}"
    return ""
