"""A plan that cannot be made, or not completely: it reports the reason in one line and an exit code."""

import asyncio
import shutil
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan import planner
from rolecall.workbench.plan.sandbox_sources import LiveSource
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.definitions import define, definition, undefine
from tests.integration.plan_command import FAILED, Command, shared_sandbox
from tests.integration.planned import NAMES, Project, clear, primary
from tests.integration.sandboxes import READ_ONLY, reader_kubeconfig, sandbox_plane
from tests.integration.shared import Role, Shared
from tests.support.things import KINDS
from tests.support.world import World

__all__ = ["reader_kubeconfig", "sandbox_plane", "shared_sandbox"]

KIND = KINDS[0]
PRESENT, INCOMPLETE = 2, 3
TASKS = """
- name: List in each version
  kubernetes.core.k8s_info: {api_version: "{{ item }}", kind: "{{ asked }}", namespace: "{{ ns }}"}
  loop: "{{ versions }}"
- name: Write a mark
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ me }}-asked", namespace: "{{ ns }}"}}
"""
SHARED = Shared({"asking": Role(TASKS, NAMES)})
"""Objects name a kind and its versions, and their role requests the objects of that kind."""


@pytest.fixture
def command(
    shared_sandbox: None,  # noqa: ARG001 - for its effect
    defined: ControlPlane,
    reader_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Command]:
    """Yield the command in a namespace of its own."""
    SHARED.operator(tmp_path, defined.kubeconfig)
    project = Project(tmp_path, f"bad-{uuid.uuid4().hex[:8]}")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project.namespace}}
    Applier(defined.kubeconfig).apply([space])
    yield Command(project, reader_kubeconfig, capsys)
    asyncio.run(clear(project, defined.kubeconfig))


def in_world(command: Command, defined: ControlPlane, *manifests: RawObject) -> None:
    """Create objects in the namespace of a command."""

    async def create() -> None:
        async with await Client.connect(str(defined.kubeconfig)) as client:
            world = World(client, command.project.namespace)
            for each in manifests:
                await world.create(yaml.safe_dump(each))

    asyncio.run(create())


def asking(asked: str, *versions: str) -> RawObject:
    """Return an object whose role requests a kind in versions."""
    return primary(KIND, "one", asked=asked, versions=list(versions))


async def remove(defined: ControlPlane, gvk: GVK, name: str) -> None:
    """Remove an object of the cluster."""
    async with await Client.connect(str(defined.kubeconfig)) as client:
        await client.delete(gvk, ObjectKey("", name))


def test_missing_role_is_reported(command: Command) -> None:
    shutil.move(command.project.directory / "roles/asking", command.project.directory / "roles/moved")
    assert "asking" in command.error(KIND.kind, "one")
    shutil.move(command.project.directory / "roles/moved", command.project.directory / "roles/asking")


def test_missing_object_is_reported_with_a_remedy(command: Command) -> None:
    expected = f"{KIND.kind} {command.project.namespace}/gone was not found; if it does not exist yet, use -f FILE"
    assert command.error(KIND.kind, "gone").startswith(expected)


def test_unwatched_kind_is_reported_with_the_watched_kinds(command: Command) -> None:
    line = command.error("Elephant", "one")
    assert line.startswith("'Elephant' is not in ")
    assert line.endswith(f"which has {KIND.kind}")


def test_unreachable_cluster_is_reported(command: Command, tmp_path: Path) -> None:
    kubeconfig = yaml.safe_load(command.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    command.kubeconfig = tmp_path / "nowhere.kubeconfig"
    command.kubeconfig.write_text(yaml.safe_dump(kubeconfig))
    assert "https://127.0.0.1:1" in command.error(KIND.kind, "one")


def test_forbidden_list_ends_the_plan(command: Command, defined: ControlPlane) -> None:
    account = {"name": "few", "namespace": command.project.namespace}
    rules = [
        {"apiGroups": [KIND.group, "apiextensions.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["namespaces", "serviceaccounts"], "verbs": ["get", "list"]},
    ]
    role, binding = list(yaml.safe_load_all(READ_ONLY))[1:]
    role |= {"metadata": {"name": command.project.namespace}, "rules": rules}
    binding |= {"metadata": {"name": command.project.namespace}, "subjects": [{"kind": "ServiceAccount", **account}]}
    binding["roleRef"]["name"] = command.project.namespace
    Applier(defined.kubeconfig).apply(
        [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}, role, binding]
    )
    in_world(command, defined, asking("Secret", "v1"))
    command.kubeconfig = defined.service_account_kubeconfig(command.project.namespace, "few")
    code, out, _ = command.plan(KIND.kind, "one")
    assert code == INCOMPLETE
    assert "complete up to task asking : List in each version: the secrets in namespace" in out
    assert "a plan needs permission to read it" in out


def test_list_too_large_to_import_ends_the_plan(
    command: Command, defined: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "LiveSource", partial(LiveSource, max_list_bytes=4 << 20))
    text = "x" * 900_000
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"map-{n}"}, "data": {"x": text}}
        for n in range(5)
    ]
    in_world(command, defined, asking("ConfigMap", "v1"), *maps)
    code, out, _ = command.plan(KIND.kind, "one")
    assert code == INCOMPLETE
    assert "take more than 4 MiB, the maximum that is imported; request fewer in the role" in out


@pytest.fixture
def converted(defined: ControlPlane) -> Iterator[GVK]:
    """Yield a kind with two versions, and a webhook that converts between them."""
    gvk = GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v2", "Converted")

    async def make() -> None:
        async with await Client.connect(str(defined.kubeconfig)) as client:
            await define(client, gvk, "v1")
            made: dict[str, Any] = definition(gvk, "v1")
            service = {"name": "nobody", "namespace": "default"}
            webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
            made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            Applier(defined.kubeconfig).apply([made])

    async def remove() -> None:
        async with await Client.connect(str(defined.kubeconfig)) as client:
            await undefine(client, gvk)

    asyncio.run(make())
    yield gvk
    asyncio.run(remove())


def test_kind_with_conversion_webhook_is_usable_in_one_version(
    command: Command, defined: ControlPlane, converted: GVK
) -> None:
    one, two = (f"{converted.group}/{version}" for version in ("v2", "v1"))
    in_world(command, defined, asking(converted.kind, one))
    code, out, _ = command.plan(KIND.kind, "one")
    assert code == PRESENT, out
    in_world(command, defined, asking(converted.kind, one, two) | {"metadata": {"name": "both"}})
    code, out, _ = command.plan(KIND.kind, "both")
    assert code == INCOMPLETE
    assert f"converteds.{converted.group} is requested in the versions v2 and v1: the webhook" in out


def test_aggregated_api_is_not_in_a_sandbox(command: Command, defined: ControlPlane) -> None:
    group = f"a{uuid.uuid4().hex[:8]}.rolecall.dev"
    spec = {
        "group": group,
        "version": "v1",
        "service": {"name": "nobody", "namespace": "default"},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    }
    service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"v1.{group}"}}
    Applier(defined.kubeconfig).apply([{**service, "spec": spec}])
    in_world(command, defined, asking("Served", f"{group}/v1"))
    try:
        code, out, _ = command.plan(KIND.kind, "one")
    finally:
        asyncio.run(remove(defined, GVK("apiregistration.k8s.io", "v1", "APIService"), f"v1.{group}"))
    assert code in (INCOMPLETE, FAILED)
    assert group in out
