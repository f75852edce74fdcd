"""The controllers of a shadow for replays: they start when a run looks for their work, not when it changes something.

They take longer to start than most replays. A run that waits asks for the same object again and again; one that does
not wait sees nothing of what controllers do.
"""

from dataclasses import dataclass, field

from rolecall.workbench.plan.sandbox_controllers import Controllers


@dataclass(slots=True)
class PatientControllers(Controllers):
    """Starts controllers at the second look at an object after something has changed."""

    _is_waiting: bool = False
    _seen: set[str] = field(default_factory=set)

    async def need(self) -> None:
        """Let controllers work as soon as a run looks for what they do."""
        self._is_waiting = True

    async def before_read(self, path: str) -> None:
        """Take note of a read, and start the controllers if it is not the first one since they are needed."""
        if self._is_waiting and path in self._seen:
            await Controllers.need(self)  # a class with slots has no super() without arguments
        elif self._is_waiting:
            self._seen.add(path)

    async def rest(self) -> None:
        """Stop the controllers until somebody needs them again."""
        self._is_waiting = False
        self._seen.clear()
        await Controllers.rest(self)
