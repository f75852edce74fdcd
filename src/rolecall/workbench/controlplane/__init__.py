"""The embedded control plane: etcd, the Kubernetes components and simulated nodes on loopback, without Docker.

It gives you the real API server with its controllers, scheduler and access rules, in a few seconds and without root.
``ControlPlane`` is the API of this package; the commands are in ``rolecall.cli.cluster``. The package imports nothing
else of rolecall, so that other projects can use it.
"""

from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.errors import BinariesUnavailableError, ComponentFailedError, ControlPlaneError

__all__ = ["BinariesUnavailableError", "ComponentFailedError", "ControlPlane", "ControlPlaneError"]
