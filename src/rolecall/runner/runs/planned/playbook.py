"""ansible-playbook for a planned run: ``python -P -m rolecall.runner.runs.planned.playbook ARGUMENT...``.

A warm run calls ``main`` in the forked process instead. Both change functions of ansible-core before it starts. A
planned run isn't possible without these changes, so it fails if one of the functions is unknown.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rolecall.runner.runs.planned.journal import DIRECTORY_VARIABLE, set_clock
from rolecall.runner.warm.ansible_patches.patches import PatchStatus, installed_patches

PLANNED_RUNS = "planned-runs"
"""The patch that makes a run a planned one."""

PROGRAM = "ansible-playbook"
COMMAND = (sys.executable, "-P", "-m", "rolecall.runner.runs.planned.playbook")
"""Replaces ansible-playbook in the command of a planned run."""


def is_planned(environment: Mapping[str, object]) -> bool:
    """Whether a run with this environment is a planned one."""
    return DIRECTORY_VARIABLE in environment


def command_of(words: Sequence[str]) -> list[str]:
    """Return the command of a planned run for a command of ansible-playbook."""
    return [*COMMAND, *words[1:]]


def without_command(words: Sequence[str]) -> list[str] | None:
    """Return the arguments if this is the command of a planned run; None if it isn't."""
    return list(words[len(COMMAND) :]) if tuple(words[: len(COMMAND)]) == COMMAND else None


def main(arguments: Sequence[str], patch: PatchStatus) -> None:
    """Run ansible-playbook with these arguments, its own name first, if the patch is in use. Raises SystemExit."""
    if not patch.is_in_use:
        sys.exit(f"This Ansible can't be planned with, use a tested release: {patch.reason}")
    # Imported here: they import Ansible, which reads the environment of the run.
    from ansible.cli import playbook  # noqa: PLC0415

    from rolecall.runner.runs.planned.hooks import install  # noqa: PLC0415
    from rolecall.runner.runs.planned.tasks import PlanEnded  # noqa: PLC0415

    install(Path(os.environ[DIRECTORY_VARIABLE]), dict(os.environ), set_clock(os.environ))
    try:
        playbook.main(list(arguments))
    except PlanEnded as ended:
        sys.exit(f"{ended}")


if __name__ == "__main__":
    sys.argv[0] = PROGRAM
    main(sys.argv, next(status for status in installed_patches() if status.name == PLANNED_RUNS))
