"""The operator whose runs ask the API server what it serves, as a program: ``rolecall run`` without shared discovery.

It is what rolecall did before, and what a cold run still does: the modules of kubernetes.core keep discovery in a file
of the directory for temporary files. Only the benchmark uses it, to compare.
"""

import sys
from unittest import mock

from rolecall.cli.main import main
from rolecall.runner.runs.api_access import SharedDiscovery


async def nothing(_discovery: SharedDiscovery) -> None:
    """Hand a run no discovery."""


if __name__ == "__main__":
    with mock.patch.object(SharedDiscovery, "for_run", nothing):
        sys.exit(main())
