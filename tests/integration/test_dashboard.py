"""The dashboard of a real operator, as a program reads it, and the commands of its guide."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rolecall.workbench.controlplane import ControlPlane
from tests.guides import guide
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually, is_true

pytestmark = pytest.mark.core

TASKS = """
- name: Write down the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: size, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "{{ size | string }}"}
"""


@pytest.fixture
async def page(tmp_path: Path, defined: ControlPlane, world: World) -> AsyncIterator[str]:
    """Yield the address of the page of an operator that was started as the guide says, but on a free port."""
    (step,) = guide("docs/guides/dashboard.md").steps
    arguments = step.command.replace(":8090", ":0").removeprefix("rolecall run ").split()
    write_project(tmp_path, TASKS)
    operator = Operator(tmp_path, defined.kubeconfig, world.namespace, tuple(arguments))
    operator.start()
    await wait_until_ready(operator)
    (line,) = operator.messages("Serving the dashboard")
    yield line["url"]
    assert operator.stop() == 0


async def read(url: str, accept: str = "application/json") -> str:
    async with aiohttp.request("GET", url, headers={"Accept": accept}) as response:
        assert response.status == 200, url
        return await response.text()


async def test_dashboard_shows_an_object_its_run_and_its_changes(page: str, world: World) -> None:
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))

    async def look() -> Any:
        return json.loads(await read(page))

    def is_done(view: Any) -> bool:
        return bool(view["rows"] and view["rows"][0]["lastRun"] and view["rows"][0]["state"] == "succeeded")

    (row,) = (await eventually(look, is_done, TIMEOUT_SECONDS, "the page shows that the object has succeeded"))["rows"]
    assert row["lastRun"]["because"][0].endswith("created")
    assert row["waitsFor"]["because"] == ["period"]

    path = f"kinds/{row['kind']}/{world.namespace}/one"
    obj = json.loads(await read(f"{page}{path}"))
    messages = {each["type"]: each["message"] for each in obj["conditions"]}
    assert messages["Successful"] == "Last reconciliation succeeded"
    assert [trigger["what"] for trigger in obj["triggers"]] == ["This Thing", "ConfigMap (v1)"]

    run = json.loads(await read(f"{page}{path}/runs/{obj['runs'][0]['id']}"))
    (task,) = [each for each in run["tasks"] if each["name"].endswith("Write down the size")]
    created = [request for request in task["requests"] if request["verb"] == "create"]
    assert "+  size: '1'" in created[0]["effects"]
    assert task["span"]["start"] < created[0]["span"]["start"] + created[0]["span"]["length"]
    for each in ("", path, f"{path}/runs/{run['id']}"):
        assert "one" in await read(f"{page}{each}", "text/html")


async def test_dashboard_is_read_only_and_rejects_other_hosts(page: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(page) as response:
            assert response.status == 405
        async with session.get(page, headers={"Host": "evil.example"}) as response:
            assert response.status == 421
