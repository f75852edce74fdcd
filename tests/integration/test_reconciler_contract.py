"""The cases of a reconcile against a real API server; the unit tests have them against the cluster in memory."""

from tests.support.reconciler_contract import ReconcilerContract


class TestControlPlane(ReconcilerContract):
    """Every case, with the fixture ``world`` of this directory."""
