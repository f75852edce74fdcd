"""Where a task runs: in the process of ansible-playbook or in a worker of its own.

A task may begin in the process of ansible-playbook and turn out to need a worker. It is then given up and begins again
in a worker, which is told how the modules ended that have run already, so that nothing is done twice.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn


class NeedsWorker(BaseException):
    """Unwinds a task that cannot go on in the process of ansible-playbook."""


class ModuleResult(NamedTuple):
    """How the process of a module ended: exit code as a shell says it, standard output, standard error."""

    code: int
    out: bytes
    err: bytes


class TaskPlacement:
    """The place of the one task that this process works on."""

    def __init__(self) -> None:
        self.is_inside = False
        """Whether the task runs in the process of ansible-playbook."""
        self._done: deque[tuple[str, ModuleResult]] = deque()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Run a task in the process of ansible-playbook; what its modules did is kept only if it is given up."""
        self.is_inside = True
        try:
            yield
            # The next task may begin in a worker, and is not this one.
            self._done.clear()
        finally:
            self.is_inside = False

    @contextmanager
    def in_worker(self) -> Iterator[None]:
        """Start a worker, which finds what the same task has done inside."""
        try:
            yield
        finally:
            self._done.clear()

    def require_worker(self, reason: str) -> None:
        """Go on only if this is a worker. Raises NeedsWorker."""
        if self.is_inside:
            self.give_up(reason)

    def give_up(self, reason: str) -> NoReturn:
        """Let the task begin again in a worker. Raises NeedsWorker."""
        raise NeedsWorker(reason)

    def note(self, module: str, outcome: ModuleResult) -> None:
        """Take note of a module that has run inside."""
        if self.is_inside:
            self._done.append((module, outcome))

    def done_before(self, module: str) -> ModuleResult | None:
        """Return how the next module ended if the task has run it inside, before it was given up."""
        if self.is_inside or not self._done or self._done[0][0] != module:
            return None
        return self._done.popleft()[1]
