"""A planned run, as the operator's side sees it: how a run is told that it is one, and what came of it.

Give ``environment()`` to the run, for example through ``ApiAccess.environment``, and read ``outcome()`` when it has
ended. The folder must exist, be empty and belong to this run alone; it holds the files that the run writes instead of
the real ones, so remove it afterwards. See docs/concepts/planned-runs.md for what is withheld.
"""

from dataclasses import dataclass
from pathlib import Path

from rolecall.runner.runs.planned.journal import (
    DIRECTORY_VARIABLE,
    RUN_COMMANDS_VARIABLE,
    EndedAt,
    Journal,
    WithheldTask,
)


@dataclass(frozen=True, slots=True)
class PlannedOutcome:
    """What a planned run did not run, and where it ended because of that, if it did."""

    withheld: tuple[WithheldTask, ...]
    ended: EndedAt | None


class NotWithheldError(Exception):
    """A run that was to be a planned one did not get as far as withholding anything."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One planned run with a folder of its own; ``run_commands`` lets run for real what would be withheld."""

    directory: Path
    run_commands: bool = False

    def environment(self) -> dict[str, str]:
        """Return the variables that make a run a planned one."""
        variables = {DIRECTORY_VARIABLE: str(self.directory)}
        return variables | ({RUN_COMMANDS_VARIABLE: "1"} if self.run_commands else {})

    def outcome(self) -> PlannedOutcome:
        """Return what the run noted, after it has ended.

        Raises NotWithheldError if it ended before its first task, for example because it could not start at all.
        """
        try:
            notes = Journal(self.directory).read()
        except FileNotFoundError:
            notes = None
        if notes is None or not notes.was_in_force:
            raise NotWithheldError(f"the planned run left no notes in {self.directory}: it did not start")
        return PlannedOutcome(notes.withheld, notes.ended)


__all__ = ["EndedAt", "NotWithheldError", "PlannedOutcome", "PlannedRun", "WithheldTask"]
