"""The proxy between real clients and a real API server: what kubectl, kubernetes.core and the Python client meet."""

import json
import socket
import sys
from pathlib import Path

import pytest

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Ownership
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.proxied import Run, config_map
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, World, is_true

pytestmark = pytest.mark.core


async def test_objects_created_by_kubectl_are_owned_and_noted(run: Run) -> None:
    applied = json.dumps(config_map(run.world, "applied"))
    for name, text, *arguments in (
        ("typed", "", "create", "configmap", "typed", "--from-literal=a=1"),
        ("applied", applied, "apply", "-f", "-"),
        ("server", applied.replace("applied", "server"), "apply", "--server-side", "-f", "-"),
    ):
        code, output = await run.kubectl(*arguments, text=text)
        assert code == 0, output
        assert await run.owners(name) == [run.itself.owner.uid]
        assert (await run.metadata(name))["resourceVersion"] in run.noted()
    assert set(run.itself.dependents) == {(CONFIG_MAP, Ownership.OWNER_REFERENCE)}


async def test_a_users_object_is_not_adopted_unless_the_annotation_asks(run: Run) -> None:
    await run.world.client.create(config_map(run.world, "users"))
    for value, annotations, expected in (("2", {}, []), ("3", {"rolecall.dev/adopt": "true"}, [run.itself.owner.uid])):
        text = json.dumps(config_map(run.world, "users", value, annotations=annotations))
        code, output = await run.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
        assert code == 0, output
        assert await run.owners("users") == expected


async def test_the_secret_is_in_no_file_but_the_kubeconfig(run: Run) -> None:
    code, output = await run.kubectl("get", "configmaps")
    assert code == 0, output
    files = [path for path in run.home.rglob("*") if path.is_file()]
    assert any("discovery" in path.parts for path in files), "kubectl keeps no cache any more: this test tests nothing"
    assert not [path for path in files if run.credentials.secret in str(path)]
    holding = [path.name for path in files if run.credentials.secret in path.read_text(errors="replace")]
    assert holding == ["kubeconfig"]


async def test_exec_gets_as_far_as_the_api_server_can_take_it(run: Run) -> None:
    pod = {"containers": [{"name": "main", "image": "none"}], "nodeName": "not-a-node"}
    metadata = {"name": "pod", "namespace": run.world.namespace}
    await run.world.wait_until_pods_are_allowed()
    await run.world.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    code, output = await run.kubectl("exec", "pod", "--", "true")
    assert code != 0
    assert "not-a-node" in output or "does not have a host assigned" in output, output


async def test_after_revocation_kubectl_is_refused(run: Run) -> None:
    assert (await run.kubectl("get", "configmaps"))[0] == 0
    await run.proxy.revoke(run.itself)
    code, output = await run.kubectl("get", "configmaps")
    assert code != 0
    assert "no secret of a live run" in output or "Unauthorized" in output or "must be logged in" in output, output


@pytest.mark.parametrize("subject", [CONFIG_MAP])
async def test_a_users_change_that_a_patch_finds_in_place_is_not_the_runs(run: Run, subject: GVK) -> None:
    await run.kubectl("create", "configmap", "cm", "--from-literal=a=1")
    before = set(run.noted())
    key = ObjectKey(run.world.namespace, "cm")
    changed = await run.world.client.patch(subject, key, {"data": {"a": "2"}})
    for kind in ("merge", "strategic"):
        code, output = await run.kubectl("patch", "configmap", "cm", "--type", kind, "-p", '{"data":{"a":"2"}}')
        assert code == 0, output
    code, output = await run.kubectl(
        "patch", "configmap", "cm", "--type", "json", "-p", '[{"op":"replace","path":"/data/a","value":"2"}]'
    )
    assert code == 0, output
    assert (await run.metadata("cm"))["resourceVersion"] == changed["metadata"]["resourceVersion"]
    assert set(run.noted()) == before


async def test_modules_of_kubernetes_core_create_own_and_note(run: Run, tmp_path: Path) -> None:
    def task(name: str, **options: object) -> RawObject:
        return {"kubernetes.core.k8s": {"definition": config_map(run.world, name), **options}}

    tasks = [
        task("plain"),
        task("plain"),
        task("plain", force=True),
        task("threeway", apply=True),
        task("server", apply=True, server_side_apply={"field_manager": "role"}),
        task("server", apply=True, server_side_apply={"field_manager": "role"}),
    ]
    playbook = tmp_path / "playbook.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    variables = ("-e", f"ansible_python_interpreter={sys.executable}")
    code, output = await run.command(str(Path(sys.executable).parent / "ansible-playbook"), str(playbook), *variables)
    assert code == 0, output
    for name in ("plain", "threeway", "server"):
        assert await run.owners(name) == [run.itself.owner.uid]
        assert (await run.metadata(name))["resourceVersion"] in run.noted()


SHOW_THE_WAY = """
- name: Show
  ansible.builtin.set_stats:
    aggregate: false
    data:
      others: "{{ query('env', 'K8S_AUTH_HOST', 'K8S_AUTH_API_KEY') | select | length }}"
      server: "{{ (lookup('file', lookup('env', 'KUBECONFIG')) | from_json).clusters[0].cluster.server }}"
      unproxied: "{{ lookup('env', 'NO_PROXY') }}"
"""
SHOWN = "status: {others: $.stats.others, server: $.stats.server, unproxied: $.stats.unproxied}"


async def test_runs_are_sent_to_the_port_that_the_operator_was_given(world: World, thing_operator: Operator) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    write_project(thing_operator.directory, SHOW_THE_WAY, SHOWN)
    thing_operator.arguments += (f"--proxy-port={port}",)
    thing_operator.environment["NO_PROXY"] = "elsewhere.example"
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
    url = f"http://127.0.0.1:{port}"
    assert {name: thing["status"][name] for name in ("others", "server")} == {"others": 0, "server": url}
    assert set(thing["status"]["unproxied"].split(",")) == {"127.0.0.1", "localhost", "elsewhere.example"}
    assert thing_operator.messages("Proxy started", url=url)
