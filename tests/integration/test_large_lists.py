"""Lists of objects of very different sizes, as the API server pages them."""

from rolecall.kube.references import RawObject
from tests.support.world import CONFIG_MAP, World

LARGE = 700_000
MOST_BYTES = 8 << 20


def config_map(world: World, name: str, size: int) -> RawObject:
    """Return a ConfigMap of this size."""
    metadata = {"namespace": world.namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x" * size}}


async def test_large_objects_behind_small_ones_come_in_small_pages(world: World) -> None:
    """The API server continues a list with fewer objects than it was requested before."""
    names = [f"a-{number:03}" for number in range(105)] + [f"b-{number:03}" for number in range(25)]
    for name in names:
        await world.client.create(config_map(world, name, LARGE if name.startswith("b") else 10))
    pages = [page async for page, _ in world.client.list_pages(CONFIG_MAP, world.namespace)]
    found = [obj["metadata"]["name"] for page in pages for obj in page]
    assert [name for name in found if name != "kube-root-ca.crt"] == names
    assert max(sum(len(obj["data"].get("text", "")) for obj in page) for page in pages) <= MOST_BYTES
