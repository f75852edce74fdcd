"""The dashboard of a real operator, as a program reads it, and the commands of its guide."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier, read_manifests
from tests.guides import guide
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.integration.test_foo import FOO_MANIFEST
from tests.integration.test_foo import NAME as FOO_NAME
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import FOO, TIMEOUT_SECONDS, World, eventually, is_true

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


WEBSITE = """
- name: Run the web server
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec:
        replicas: "{{ size | int }}"
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {containers: [{name: web, image: "web:1"}]}
- name: Store the login
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: login, namespace: "{{ ansible_operator_meta.namespace }}"}
      stringData: {password: planted-Pa55word}
"""
PLANTED = "planted-Pa55word"
LIST = "The operator is not permitted to list {} objects in {} (Forbidden)."


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


def outline(nodes: Any) -> list[Any]:
    """Return a tree as nested lists of kinds and readiness."""
    return [[each["kind"], each["verdict"]["readiness"], *outline(each["owned"])] for each in nodes]


async def test_object_has_its_tree_events_and_masked_spec(tmp_path: Path, defined: ControlPlane, world: World) -> None:
    write_project(tmp_path, WEBSITE, "sensitive: [$.spec.pin]")
    operator = Operator(tmp_path, defined.kubeconfig, world.namespace, ("--ui-bind-address", "127.0.0.1:0"))
    operator.start()
    try:
        await wait_until_ready(operator)
        await world.create(MANIFEST.replace("size: 1", f"size: 2, pin: 1234, url: 'https://{PLANTED}@db'"))
        await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
        url = operator.messages("Serving the dashboard")[0]["url"]
        url = f"{url}kinds/Thing.v1.test.rolecall.dev/{world.namespace}/one"

        async def look() -> Any:
            return json.loads(await read(url))["cluster"]

        pods = [["Pod", "ready"], ["Pod", "ready"]]
        tree = [["Secret", "ready"], ["Deployment", "ready", ["ReplicaSet", "ready", *pods]]]

        def is_complete(seen: Any) -> bool:
            return outline(seen["owned"]) == tree and bool(seen["events"])

        view = await eventually(look, is_complete, TIMEOUT_SECONDS, "the tree is ready, and an Event is there")
        assert view["notes"] == []
        assert [(each["reason"], each["count"]) for each in view["events"]] == [("Reconciled", 1)]
        assert view["spec"] == ["spec:", "  pin: (masked)", "  size: 2", "  url: https://(masked)@db"]
        text = await read(url, "text/html")
        assert PLANTED not in text
        assert "Reconciled" in text
    finally:
        assert operator.stop() == 0


async def test_page_reports_missing_permissions_until_they_are_granted(
    tmp_path: Path, account_kubeconfig: Path, defined: ControlPlane, world: World
) -> None:
    copy_project(tmp_path, "watches.yaml", "roles", "ansible.cfg")
    operator = Operator(tmp_path, account_kubeconfig, world.namespace, ("--ui-bind-address", "127.0.0.1:0"))
    operator.start()
    granted = read_manifests(PROJECT / "deploy/components/dashboard/rbac.yaml")
    try:
        await wait_until_ready(operator)
        await world.create(FOO_MANIFEST)
        await world.wait_for(FOO, FOO_NAME, lambda obj: is_true(obj, "Successful"))
        url = operator.messages("Serving the dashboard")[0]["url"]
        url = f"{url}kinds/Foo.v1alpha1.samplecontroller.k8s.io/{world.namespace}/{FOO_NAME}"

        async def look() -> Any:
            return json.loads(await read(url))["cluster"]

        tree = [["Deployment", "ready", ["ReplicaSet", "ready", ["Pod", "ready"], ["Pod", "ready"]]]]
        view = await eventually(look, lambda seen: outline(seen["owned"]) == tree, TIMEOUT_SECONDS, "the tree is ready")
        assert (view["notes"], view["events"]) == ([LIST.format("Event", world.namespace)], [])
        assert LIST.format("Event", world.namespace) in await read(url, "text/html")

        Applier(defined.kubeconfig).apply(granted)
        view = await eventually(look, lambda seen: seen["events"], TIMEOUT_SECONDS, "the Events are listed")
        assert view["notes"] == []
    finally:
        for obj in granted:
            with contextlib.suppress(NotFoundError):
                await world.client.delete(GVK.of_object(obj), ObjectKey.of_object(obj))
        await world.delete(FOO, FOO_NAME)
        assert operator.stop() == 0


FAILS_EARLY = """
- name: Check the size
  ansible.builtin.assert: {that: false, fail_msg: the size is too large}
"""


async def test_owned_objects_are_unknown_after_a_restart_with_a_role_that_fails_early(
    tmp_path: Path, defined: ControlPlane, world: World
) -> None:
    def started() -> Operator:
        operator = Operator(tmp_path, defined.kubeconfig, world.namespace, ("--ui-bind-address", "127.0.0.1:0"))
        operator.start()
        return operator

    write_project(tmp_path, TASKS)
    operator = started()
    await wait_until_ready(operator)
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
    assert operator.stop() == 0
    write_project(tmp_path, FAILS_EARLY)
    operator = started()
    try:
        await wait_until_ready(operator)
        await world.wait_for(THING, "one", lambda obj: is_true(obj, "Failure"))
        url = operator.messages("Serving the dashboard")[-1]["url"]
        url = f"{url}kinds/Thing.v1.test.rolecall.dev/{world.namespace}/one"

        async def look() -> Any:
            return json.loads(await read(url))

        view = await eventually(look, lambda seen: seen["failures"], TIMEOUT_SECONDS, "the page has the failure")
        assert view["failures"] == ["Task 'Check the size': the size is too large"]
        assert (view["cluster"]["owned"], view["cluster"]["knowsOwned"]) == ([], False)
        assert "Unknown: no run of this object has succeeded" in await read(url, "text/html")
    finally:
        assert operator.stop() == 0


async def test_follower_names_the_leader(tmp_path: Path, defined: ControlPlane, world: World) -> None:
    flags = ("--leader-elect", "--leader-election-id", "dashboard", "--leader-election-namespace", world.namespace)
    operators = list[Operator]()
    try:
        for name in ("first", "second"):
            directory = tmp_path / name
            directory.mkdir()
            write_project(directory, TASKS)
            arguments = (*flags, "--health-probe-bind-address", "127.0.0.1:0", "--ui-bind-address", "127.0.0.1:0")
            operators.append(Operator(directory, defined.kubeconfig, world.namespace, arguments))
            operators[-1].start()

        async def urls() -> list[str]:
            return [line["url"] for each in operators for line in each.messages("Serving the dashboard")]

        found = await eventually(urls, lambda seen: len(seen) == 2, TIMEOUT_SECONDS, "both serve the dashboard")

        async def look() -> Any:
            return sorted([json.loads(await read(url))["replica"]["text"] for url in found])

        leader = f"The leader is the operator on {socket.gethostname()}."
        expected = [
            f"This replica is a follower: it shows no runs and no messages of failures. {leader}",
            "This replica runs the roles.",
        ]
        await eventually(
            look, lambda seen: seen == expected, TIMEOUT_SECONDS, "a replica leads, and the other names it"
        )
    finally:
        assert [operator.stop() for operator in operators] == [0] * len(operators)


async def test_dashboard_is_read_only_and_rejects_other_hosts(page: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(page) as response:
            assert response.status == 405
        async with session.get(page, headers={"Host": "evil.example"}) as response:
            assert response.status == 421
