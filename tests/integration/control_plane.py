"""The control plane that integration tests share: started once for a session of pytest, stopped at its end.

conftest.py imports the fixture. The name carries the number of the process, so that sessions side by side never meet.
Tests keep except each other by their own namespaces; a test that stops components uses a control plane of its
own.
"""

import os
from collections.abc import Iterator

import pytest

from rolecall.workbench.controlplane import ControlPlane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Give a control plane with three simulated nodes that is ready."""
    with ControlPlane(f"test-{os.getpid()}", nodes=3) as running:
        yield running
