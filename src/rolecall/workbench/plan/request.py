"""What somebody wants to have planned."""

from dataclasses import dataclass
from pathlib import Path

from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch


class PlanError(Exception):
    """A plan cannot be made; the text is one line that says what was found, where, and what to do."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan for one object (``kind`` and ``name``), for the objects in ``files``, or for all (``everything``).

    ``kind`` is as people write it (``Foo``, ``foo``, ``foos``, ``foos.example.com``); with ``everything`` it selects a
    kind and may be empty. An object in a file is planned as if the file had been applied. With ``follows_controllers``
    the plan says what the controllers of Kubernetes do because of it.
    """

    settings: Settings
    watches: tuple[Watch, ...]
    kind: str = ""
    name: str = ""
    namespace: str = ""
    files: tuple[Path, ...] = ()
    everything: bool = False
    runs_commands: bool = False
    follows_controllers: bool = False
