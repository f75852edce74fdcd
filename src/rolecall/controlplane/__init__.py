"""The embedded control plane: etcd, the Kubernetes components and simulated nodes on loopback, without Docker.

A newcomer, a test and a demonstration get the real API server, with its real controllers, scheduler and access rules,
in a few seconds and as an ordinary user. ControlPlane is the whole of it; the command line's part is
rolecall.cli.cluster. This package uses nothing else of rolecall, so that it could serve any other project as well.
"""

from rolecall.controlplane.cluster import ControlPlane
from rolecall.controlplane.errors import BinariesUnavailableError, ComponentFailedError, ControlPlaneError

__all__ = ["BinariesUnavailableError", "ComponentFailedError", "ControlPlane", "ControlPlaneError"]
