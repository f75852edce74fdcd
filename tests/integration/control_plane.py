"""The control plane that integration tests share: started once for a session of pytest, stopped at its end.

conftest.py imports the fixture. The name carries the number of the process, so that sessions side by side never meet.
Tests keep out of each other's way by their own namespaces; a test that stops components uses a control plane of its
own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.support.things import DEFINITION


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Yield a control plane with three simulated nodes that is ready."""
    with ControlPlane(f"test-{os.getpid()}", nodes=3) as running:
        yield running


@contextmanager
def separate_control_plane(name: str, *, has_controllers: bool = True) -> Iterator[ControlPlane]:
    """Start a control plane for a test that stops a part of it; it knows the kind Thing."""
    with ControlPlane(f"{name}-{os.getpid()}", has_controllers=has_controllers) as running:
        Applier(running.kubeconfig).apply([DEFINITION])
        yield running
