"""Plans with the CustomResourceDefinitions of a project that differ from those of the cluster."""

import asyncio
import copy
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.crashtest import tester
from rolecall.workbench.explore import explorer
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.definitions import define, definition, undefine
from tests.integration.plan_command import FAILED, Command, shared_sandbox
from tests.integration.planned import Project
from tests.integration.sandboxes import reader_kubeconfig, sandbox_plane, use_sandbox

__all__ = ["reader_kubeconfig", "sandbox_plane", "shared_sandbox"]

PRESENT = 2
ROLE = """
- name: Write what the role was given
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data:
        quota: "{{ quota | to_json }}"
        old: "{{ old | default('not given') }}"
"""
ARGUMENTS = """
argument_specs:
  main:
    options:
      old: {type: str}
      quota:
        type: dict
        required: true
        options:
          cpu: {type: int}
          storage: {type: str, required: true}
"""
OLD: RawObject = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "old": {"type": "string"},
                "quota": {"type": "object", "properties": {"cpu": {"type": "integer", "description": "Before"}}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def schema(**quota: Any) -> RawObject:
    """Return the schema with other properties of the quota, and without ``old``."""
    found = copy.deepcopy(OLD)
    fields = found["properties"]["spec"]["properties"]
    fields.pop("old")
    fields["quota"]["properties"] |= quota
    return found


STORAGE = {"type": "string", "default": "1Gi"}
WriteProject = Callable[..., None]


pytestmark = pytest.mark.usefixtures("shared_sandbox")


@pytest.fixture
def gvk(defined: ControlPlane) -> Iterator[GVK]:
    """Yield a kind that the cluster defines with the old schema."""
    gvk = GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Team")

    async def make() -> None:
        async with await Client.connect(str(defined.kubeconfig)) as client:
            await define(client, gvk, schema=OLD)

    async def remove() -> None:
        async with await Client.connect(str(defined.kubeconfig)) as client:
            await undefine(client, gvk)

    asyncio.run(make())
    yield gvk
    asyncio.run(remove())


@pytest.fixture
def command(
    defined: ControlPlane,
    reader_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gvk: GVK,
) -> Command:
    """Return the command in a project whose definition has a field of the quota that its role requires."""
    project = Project(tmp_path, f"defined-{uuid.uuid4().hex[:8]}")
    for name, text in (("tasks/main.yml", ROLE), ("meta/argument_specs.yml", ARGUMENTS)):
        (tmp_path / "roles/team" / name).parent.mkdir(parents=True)
        (tmp_path / "roles/team" / name).write_text(text)
    watch = {"group": gvk.group, "version": gvk.version, "kind": gvk.kind, "role": "team"}
    (tmp_path / "watches.yaml").write_text(yaml.safe_dump([watch]))
    (tmp_path / "deploy/crds").mkdir(parents=True)
    write(tmp_path, definition(gvk, schema=schema(storage=STORAGE)))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project.namespace}}
    Applier(defined.kubeconfig).apply([space])
    return Command(project, reader_kubeconfig, capsys)


def write(project: Path, found: RawObject) -> None:
    """Write the definition of a project."""
    project.joinpath("deploy", "crds", "team.yaml").write_text(yaml.safe_dump(found))


def create(command: Command, defined: ControlPlane, gvk: GVK, *names: str, **spec: Any) -> None:
    """Create objects in the cluster."""

    async def run() -> None:
        async with await Client.connect(str(defined.kubeconfig)) as client:
            for name in names:
                metadata = {"name": name, "namespace": command.project.namespace}
                await client.create(
                    {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, "spec": spec}
                )

    asyncio.run(run())


def planned(command: Command, *arguments: str) -> dict[str, Any]:
    """Return the document of a plan for all objects."""
    _, out, err = command.plan(*(arguments or ("--all",)), "--output", "json")
    assert out, err
    found: dict[str, Any] = json.loads(out)
    return found


def data_of(one: dict[str, Any]) -> Any:
    """Return the data of the ConfigMap that an object's role writes."""
    [change] = [each for each in one["changes"] if each["kind"] == "ConfigMap"]
    return change["after"]["data"]


def test_all_objects_are_planned_with_the_definitions_of_the_project(
    command: Command, defined: ControlPlane, gvk: GVK
) -> None:
    create(command, defined, gvk, "red", "blue", "green", old="x", quota={"cpu": 1})
    code, out, err = command.plan("--all")
    assert code == PRESENT, (out, err)
    lines = out.splitlines()
    used = "planned with the project's (--cluster-crds: the cluster's)"
    assert lines[0] == f"The project's CRDs differ from the cluster's: Team; {used}"
    space = command.project.namespace
    assert lines[2] == f"3 of 3: 1 to create, status changes (Team {space}/blue, {space}/green, {space}/red)"
    assert lines[-1] == "3 objects planned, 0 unchanged; 3 to create, 0 to change, 0 to delete"

    found = planned(command)
    assert found["definitions"] == {"source": "project", "different": ["Team"], "new": []}
    defaulted = {"quota": '{"cpu": 1, "storage": "1Gi"}', "old": "not given"}
    assert [data_of(each) for each in found["objects"]] == [defaulted] * 3, "defaulted and pruned"


def test_objects_fail_with_the_definitions_of_the_cluster_if_requested(
    command: Command, defined: ControlPlane, gvk: GVK
) -> None:
    create(command, defined, gvk, "red", "blue", quota={"cpu": 1})
    code, out, _ = command.plan("--all", "--cluster-crds")
    lines = out.splitlines()
    assert code == FAILED
    assert lines[0] == "The project's CRDs differ from the cluster's: Team; planned with the cluster's"
    assert lines[2].startswith("2 of 2 would fail: ")
    assert lines[2].endswith(
        "Validation of arguments failed: missing required arguments: storage found in quota "
        f"(Team {command.project.namespace}/blue, {command.project.namespace}/red)"
    )
    assert lines[-1] == "2 objects planned, 0 unchanged, 2 would fail; 0 to create, 0 to change, 0 to delete"


def test_texts_for_people_are_no_difference(command: Command, defined: ControlPlane, gvk: GVK) -> None:
    described = definition(gvk, schema=copy.deepcopy(OLD))
    described["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "Old", "type": "string", "jsonPath": ".spec.old"}
    ]
    fields = described["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["quota"]["properties"]["cpu"]["description"] = "After"
    write(command.project.directory, described)
    create(command, defined, gvk, "red", quota={"cpu": 1})
    assert planned(command)["definitions"]["different"] == []


def test_object_that_the_new_definition_rejects_is_a_finding(command: Command, defined: ControlPlane, gvk: GVK) -> None:
    cpu = {"type": "integer", "maximum": 4}
    write(command.project.directory, definition(gvk, schema=schema(storage=STORAGE, cpu=cpu)))
    create(command, defined, gvk, "small", quota={"cpu": 4})
    create(command, defined, gvk, "large", quota={"cpu": 5})
    large, small = planned(command)["objects"]
    assert [each["rejected"] for each in planned(command, "--all", "--cluster-crds")["objects"]] == ["", ""]
    assert (
        "spec.quota.cpu: Invalid value: 5: spec.quota.cpu in body should be less than or equal to 4"
        in (large["rejected"])
    )
    assert (large["failure"], small["rejected"]) == ("", "")
    assert data_of(large)["quota"] == '{"cpu": 5, "storage": "1Gi"}', "its run is planned nevertheless"


def test_object_is_read_in_a_version_that_only_the_project_has(
    command: Command, defined: ControlPlane, gvk: GVK
) -> None:
    newer = GVK(gvk.group, "v2", gvk.kind)
    watches = command.project.directory / "watches.yaml"
    watches.write_text(watches.read_text().replace("version: v1", "version: v2"))
    write(command.project.directory, definition(newer, "v1", schema=schema(storage=STORAGE)))
    create(command, defined, gvk, "red", quota={"cpu": 1})
    for arguments in (("--all",), ("Team", "red")):
        [one] = planned(command, *arguments)["objects"]
        assert (one["apiVersion"], one["failure"]) == (newer.api_version, "")
        assert data_of(one)["quota"] == '{"cpu": 1, "storage": "1Gi"}'
    assert command.error("Team", "blue").startswith(f"Team {command.project.namespace}/blue was not found")


def test_kind_that_only_the_project_has_is_planned_from_a_file(command: Command, gvk: GVK) -> None:
    other = GVK(gvk.group.replace("g", "h", 1), "v1", "Team")
    watches = command.project.directory / "watches.yaml"
    watches.write_text(watches.read_text().replace(gvk.group, other.group))
    write(command.project.directory, definition(other, schema=schema(storage=STORAGE)))
    file = command.project.directory / "red.yaml"
    given = {"apiVersion": other.api_version, "kind": "Team", "metadata": {"name": "red"}, "spec": {"quota": {}}}
    file.write_text(yaml.safe_dump(given))
    found = planned(command, "-f", str(file))
    assert found["definitions"] == {"source": "project", "different": [], "new": ["Team"]}
    assert data_of(found["objects"][0])["quota"] == '{"storage": "1Gi"}'


@pytest.mark.parametrize("rejected", ["scope", "version", "schema"])
def test_definition_that_the_api_server_would_reject_is_reported(
    command: Command, defined: ControlPlane, gvk: GVK, rejected: str
) -> None:
    create(command, defined, gvk, "red", quota={"cpu": 1})
    if rejected == "scope":
        found = definition(gvk, schema=OLD)
        found["spec"]["scope"] = "Cluster"
        reason = "the scope of a kind can't change"
    elif rejected == "version":
        found = definition(GVK(gvk.group, "v2", gvk.kind), schema=OLD)
        reason = "it lacks version v1, in which the cluster stores objects"
    else:
        found = definition(gvk, schema={"type": "object", "properties": {"spec": {"type": "nonsense"}}})
        reason = "Unsupported value"
    write(command.project.directory, found)
    line = command.error("--all")
    assert f"teams.{gvk.group}" in line
    assert reason in line


@pytest.mark.parametrize(
    ("module", "done", "arguments"),
    [(tester, "tested", ()), (explorer, "explored", ("--field", "quota.storage", "--edits", "1", "--seed", "1"))],
    ids=["crashtest", "explore"],
)
def test_role_is_tested_with_the_definitions_of_the_project(  # noqa: PLR0913, PLR0917 - each is a fixture or a parameter
    command: Command,
    sandbox_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    done: str,
    arguments: tuple[str, ...],
    gvk: GVK,
) -> None:
    """The role requires a field that the cluster's definition doesn't have."""
    use_sandbox(sandbox_plane, module, monkeypatch)
    file = command.project.directory / "red.yaml"
    given = {"apiVersion": gvk.api_version, "kind": "Team", "metadata": {"name": "red"}, "spec": {"quota": {"cpu": 1}}}
    file.write_text(yaml.safe_dump(given))
    name = module.__name__.split(".")[-2]
    wanted = ("-f", str(file), *arguments, "-o", "json")
    code, out, err = command.run(name, *wanted)
    assert code == 0, (out, err)
    used = "the project's (--cluster-crds: the cluster's)"
    assert json.loads(out)["notes"] == [f"The project's CRDs differ from the cluster's: Team; {done} with {used}"]

    code, out, err = command.run(name, *wanted, "--cluster-crds")
    assert (code, out) == (FAILED, "")
    assert "missing required arguments: storage found in quota" in err
