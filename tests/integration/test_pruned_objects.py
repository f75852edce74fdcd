"""What prune deletes can be brought back from the record, and what it proposes is confirmed with the shown command."""

import asyncio
import base64
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.metadata import annotation_of, metadata_of, uid_of
from rolecall.kube.references import GVK
from rolecall.runner.record.reader import read_record
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, always, eventually

SECRET = GVK("", "v1", "Secret")
INVENTORY, MARK = "rolecall.dev/inventory", "rolecall.dev/made-for"
PLANTED = "planted-Pa55word"
QUIET_SECONDS = 6.0

TASKS = """
- name: Make the parts
  kubernetes.core.k8s:
    apply: "{{ applies | default(false) }}"
    definition:
      apiVersion: v1
      kind: "{{ item.split('/')[0] }}"
      metadata:
        name: "{{ item.split('/')[1] }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: {rolecall.dev/prune: "true"}
      stringData: "{{ {'password': 'planted-Pa55word'} if item.startswith('Secret') else omit }}"
  loop: "{{ parts }}"
- name: Delete what is no longer needed
  rolecall.util.prune:
    after: 1s
    mode: MODE
"""
SHARED = Shared(
    {mode: Role(TASKS.replace("MODE", mode)) for mode in ("delete", "report")},
    ("--backoff-max", "20s", "--record-dir", "FOLDER/records"),
)

PLANNED = {
    "delete": ("  - ConfigMap {}/b: no longer named by the role, deleted after ", "1 to delete"),
    "report": ("  ? ConfigMap {}/b: no longer named by the role, kept, because the mode is report\n", "1 to confirm"),
}
"""The start of a line of a plan about the object, and the end of the last line."""


async def parts(world: World) -> set[str]:
    """Return the ConfigMaps and Secrets of a namespace, except those of Kubernetes itself."""
    found = {
        f"{gvk.kind}/{metadata_of(obj)['name']}" for gvk in (CONFIG_MAP, SECRET) for obj in await world.objects(gvk)
    }
    return found - {"ConfigMap/kube-root-ca.crt"}


async def become(world: World, *expected: str) -> None:
    """Wait until exactly these objects exist."""
    await eventually(lambda: parts(world), set(expected).__eq__, TIMEOUT_SECONDS, f"only {expected}")


async def made(thing: Thing, *wanted: str, **others: Any) -> None:
    """Create an object with parts, and wait until its inventory has them."""
    await thing.create({"parts": list(wanted), **others})
    names = [f'"{each.split("/")[1]}"' for each in wanted]
    await thing.world.wait_for(
        thing.gvk, thing.name, lambda obj: all(name in (annotation_of(obj, INVENTORY) or "") for name in names)
    )


async def run(thing: Thing, *command: str, given: str = "", cwd: Path | None = None) -> str:
    """Run a command as an administrator, in the project of the operator by default, and return its output."""
    environment = {**os.environ, "KUBECONFIG": str(thing.operator.kubeconfig)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd or thing.operator.directory, env=environment, stdin=pipe, stdout=pipe
    )
    printed, _ = await process.communicate(given.encode())
    return printed.decode()


async def rolecall(thing: Thing, *arguments: str, cwd: Path | None = None) -> str:
    """Run a command of rolecall."""
    return await run(thing, sys.executable, "-m", "rolecall", *arguments, cwd=cwd)


def manifests(thing: Thing) -> list[tuple[Path, dict[str, Any]]]:
    """Return the manifests in the records of an object, with the files."""
    paths = sorted((thing.operator.directory / "records").glob("*.jsonl"))
    ends = [(path, read_record(path)) for path in paths]
    return [
        (path, each)
        for path, record in ends
        if record.name == f"{thing.world.namespace}/{thing.name}"
        for each in record.end["prune"].get("manifests", ())
    ]


async def test_deleted_object_is_brought_back_from_the_record_and_stays(world: World, things: Things) -> None:
    """With ``kubectl apply`` of the manifest in the record; the role still doesn't name it."""
    one = things["delete"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    before = await world.get(CONFIG_MAP, "b")
    await world.patch(CONFIG_MAP, "b", {"data": {"by": "a user"}})
    await one.patch({"spec": {"parts": ["ConfigMap/a"]}})
    await become(world, "ConfigMap/a")
    found: list[tuple[Path, dict[str, Any]]] = await eventually(
        lambda: asyncio.to_thread(manifests, one), bool, TIMEOUT_SECONDS, "a record with the manifest"
    )
    [(path, manifest)] = found
    assert f"    ConfigMap {world.namespace}/b\n" in await rolecall(one, "record", "show", str(path))
    await run(one, "kubectl", "apply", "-f", "-", given=json.dumps(manifest))
    restored = await world.get(CONFIG_MAP, "b")
    assert restored["data"] == {"by": "a user"}
    assert uid_of(restored) != uid_of(before)
    assert metadata_of(restored)["ownerReferences"] == metadata_of(before)["ownerReferences"]
    assert annotation_of(restored, MARK) is None
    await one.patch({"spec": {"other": 1}})
    await always(lambda: parts(world), {"ConfigMap/a", "ConfigMap/b"}.__eq__, QUIET_SECONDS, "the object stays")


async def test_values_of_a_deleted_secret_are_masked_in_the_record(world: World, things: Things) -> None:
    one = things["delete"]
    await made(one, "ConfigMap/a", "Secret/login")
    await one.patch({"spec": {"parts": ["ConfigMap/a"]}})
    await become(world, "ConfigMap/a")
    found: list[tuple[Path, dict[str, Any]]] = await eventually(
        lambda: asyncio.to_thread(manifests, one), bool, TIMEOUT_SECONDS, "a record with the manifest"
    )
    [(path, manifest)] = found
    assert (manifest["kind"], list(manifest["data"])) == ("Secret", ["password"])
    assert not [each for each in (PLANTED, base64.b64encode(PLANTED.encode()).decode()) if each in path.read_text()]


async def test_object_that_apply_has_created_is_deleted(world: World, things: Things) -> None:
    one = things["delete"]
    await made(one, "ConfigMap/a", "ConfigMap/b", applies=True)
    await one.patch({"spec": {"parts": ["ConfigMap/a"]}})
    await become(world, "ConfigMap/a")


async def test_proposal_is_confirmed_with_the_command_of_the_status(world: World, things: Things) -> None:
    one = things["report"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await one.patch({"spec": {"parts": ["ConfigMap/a"]}})

    async def status() -> dict[str, Any]:
        document = json.loads(
            await rolecall(one, "status", "-n", world.namespace, "--kind", one.gvk.kind, "-o", "json")
        )
        [found] = document["objects"]
        return dict(found["proposal"] or {})

    proposal = await eventually(status, bool, TIMEOUT_SECONDS, "a proposal")
    [proposed] = proposal["objects"]
    assert (proposed["kind"], proposed["namespace"], proposed["name"]) == ("ConfigMap", world.namespace, "b")
    text = await rolecall(one, "status", "-n", world.namespace, "--kind", one.gvk.kind)
    assert f"no longer needs 1 object: ConfigMap {world.namespace}/b\n  {proposal['command']}\n" in text
    await always(lambda: parts(world), {"ConfigMap/a", "ConfigMap/b"}.__eq__, 2.0, "nothing is deleted")
    await run(one, *shlex.split(proposal["command"]))
    await become(world, "ConfigMap/a")
    assert await eventually(status, lambda found: not found, TIMEOUT_SECONDS, "no proposal") == {}


@pytest.mark.parametrize("mode", PLANNED)
async def test_plan_shows_what_is_deleted_or_proposed(world: World, things: Things, tmp_path: Path, mode: str) -> None:
    line, total = PLANNED[mode]
    one = things[mode]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    edited = {**await one.get(), "spec": {"parts": ["ConfigMap/a"]}}
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    printed = await rolecall(one, "plan", "-f", str(tmp_path / "edited.json"))
    assert line.format(world.namespace) in printed
    assert printed.endswith(f"{total}\n")
    assert MARK not in printed


async def test_plan_of_a_new_version_of_the_role_proposes(world: World, things: Things, tmp_path: Path) -> None:
    """Also in mode delete: a mistake in it would delete objects of all primaries."""
    one = things["delete"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    project = tmp_path / "project"
    shutil.copytree(one.operator.directory, project, ignore=shutil.ignore_patterns("records"))
    tasks = SHARED.roles["delete"].tasks.replace('"{{ parts }}"', '"{{ parts[:1] }}"')
    (project / "roles/delete/tasks/main.yml").write_text(tasks)
    printed = await rolecall(one, "plan", one.gvk.kind, "one", "-n", world.namespace, cwd=project)
    why = "the role or its variables changed"
    assert f"  ? ConfigMap {world.namespace}/b: no longer named by the role, kept, because {why}\n" in printed
