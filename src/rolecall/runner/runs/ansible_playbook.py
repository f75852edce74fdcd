"""ansible-playbook in a new interpreter: the ``program`` of a run that isn't forked from the fork server.

It is the installed ansible-playbook, with fewer garbage collections. They take a tenth of its CPU time, most of it
before the first task, and those in a worker write to all memory that the worker shares with ansible-playbook.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rolecall.system.imports import collect_rarely, without_collections


def main(arguments: Sequence[str]) -> None:
    """Run ansible-playbook with these arguments, its own name first. Raises SystemExit."""
    with without_collections():
        from ansible.cli import playbook  # noqa: PLC0415 - imported in this block
    collect_rarely()
    playbook.main(list(arguments))


if __name__ == "__main__":
    sys.argv[0] = str(Path(sys.executable).with_name("ansible-playbook"))
    main(sys.argv)
