import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from bench.fleet import DEPENDENTS, check_dependents
from bench.subjects import CONTENT, FLEET
from bench.suite import sizes
from jinja2 import Template

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from tests.unit.kube.conftest import serving, write_kubeconfig

KEYS = [ObjectKey("fleet", name) for name in ("one", "two")]
PATHS = {
    "/apis/apps/v1": ["Deployment"],
    "/api/v1": ["Service", "ServiceAccount"],
    "/apis/networking.k8s.io/v1": ["Ingress"],
}


def manifests(key: ObjectKey) -> list[RawObject]:
    """Return the manifests that the role's template has for a new object."""
    obj = FLEET.make(key, 0)
    template = Template((CONTENT / "roles" / "app" / "templates" / "app.yaml.j2").read_text())
    return list(yaml.safe_load_all(template.render(obj["spec"], ansible_operator_meta=obj["metadata"])))


def test_role_makes_the_expected_dependents_without_replicas() -> None:
    made = {GVK.of_object(obj): obj for obj in manifests(KEYS[0])}
    assert made.keys() == set(DEPENDENTS)
    assert {ObjectKey.of_object(obj) for obj in made.values()} == {KEYS[0]}
    assert made[DEPENDENTS[0]]["spec"]["replicas"] == 0


async def check(stored: Sequence[RawObject], directory: Path) -> None:
    """Check the dependents of both objects in a cluster with these objects."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if kinds := PATHS.get(request.path):
            resources = [{"name": each.lower(), "kind": each, "namespaced": True, "verbs": ["list"]} for each in kinds]
            return web.json_response({"resources": resources})
        items = [obj for obj in stored if request.path.endswith(f"/namespaces/fleet/{obj['kind'].lower()}")]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "7"}})

    async with serving(handle) as url, await Client.connect(write_kubeconfig(directory, url, {})) as client:
        await check_dependents(client, KEYS)


async def test_fleet_with_all_dependents_is_ready(tmp_path: Path) -> None:
    await check([obj for key in KEYS for obj in manifests(key)], tmp_path)


@pytest.mark.parametrize("gvk", DEPENDENTS, ids=lambda gvk: gvk.kind)
async def test_object_without_one_of_its_dependents_is_an_error(gvk: GVK, tmp_path: Path) -> None:
    stored = [*manifests(KEYS[0]), *(obj for obj in manifests(KEYS[1]) if obj["kind"] != gvk.kind)]
    with pytest.raises(RuntimeError, match=f"^fleet: 1 of 2 objects have no {gvk.kind}$"):
        await check(stored, tmp_path)


@pytest.mark.parametrize(("text", "counts"), [("20", (20,)), ("100,500,1000", (100, 500, 1000))])
def test_sizes_of_fleets_are_separated_by_commas(text: str, counts: tuple[int, ...]) -> None:
    assert sizes(text) == counts


@pytest.mark.parametrize("text", ["", "0", "10,", "-1", "1.5", "ten"])
def test_invalid_size_of_a_fleet_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected numbers above 0"):
        sizes(text)
