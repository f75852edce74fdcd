"""The control plane of the integration tests, for proofs that take too long for each change."""

from tests.integration.conftest import defined
from tests.integration.control_plane import control_plane

__all__ = ["control_plane", "defined"]
