"""The cases of a reconcile against the cluster in memory; ``tests/integration`` has them against a real one."""

from tests.support.reconciler_contract import ReconcilerContract


class TestClusterInMemory(ReconcilerContract):
    """Every case, with the fixture ``world`` of this directory."""
