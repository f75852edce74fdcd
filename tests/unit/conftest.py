import pytest

from tests.integration.world import World
from tests.unit.fake_cluster import FakeCluster

pytest.register_assert_rewrite("tests.unit.reconcile.reconciler_contract")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def world(cluster: FakeCluster) -> World:
    return World(cluster, "default")
