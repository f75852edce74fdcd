"""Pruning on a real API server: what changed inputs make obsolete is deleted, and nothing else ever is."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import annotation_of, metadata_of, uid_of
from rolecall.kube.references import GVK
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.world import CONFIG_MAP, EVENT, TIMEOUT_SECONDS, World, always, eventually

SECRET = GVK("", "v1", "Secret")
SERVICE = GVK("", "v1", "Service")
INVENTORY = "rolecall.dev/inventory"
PRUNE = "rolecall.dev/prune"
QUIET_SECONDS = 6.0
"""Several times as long as an object stays obsolete here."""

MAKE = """
- name: Make the parts
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: "{{ item.split('/')[0] }}"
      metadata: {name: "{{ item.split('/')[1] }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  loop: "{{ parts }}"
"""
END = """
- name: Delete what is no longer needed
  rolecall.util.prune:
    after: 1s
"""
REQUEUE = """
- name: Run again later
  rolecall.util.requeue_after: {time: 1h}
  when: requeues | default(false)
"""
JOB = """
- name: Start a background job
  ansible.builtin.command: {argv: [tail, -f, /dev/null]}
  async: 1000
  poll: 0
  changed_when: false
  when: starts | default(false)
"""
AS_ANOTHER = """
- name: Look with other credentials
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: b
    namespace: "{{ ansible_operator_meta.namespace }}"
    kubeconfig: "{{ admin }}"
  when: admin is defined
"""
DRY = """
- name: Show what would change
  ansible.builtin.command:
    argv: [kubectl, -n, "{{ ansible_operator_meta.namespace }}", label, configmap, b, x=y, --dry-run=server]
  changed_when: false
  when: dry | default(false)
"""
GATED = """
- name: Look for the gate
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: gate
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: gate
"""
SHARED = Shared(
    {
        "plain": Role(MAKE + END),
        "listing": Role(MAKE + END + "    kinds: [{kind: Secret}]\n"),
        "reporting": Role(MAKE + END + "    mode: report\n"),
        "gated": Role(GATED + MAKE + "  when: gate.resources | length > 0\n" + END),
        "ending": Role(MAKE + "- ansible.builtin.meta: end_play\n  when: ends | default(false)\n" + END),
        "ignoring": Role(
            MAKE + "- ansible.builtin.fail:\n  when: fails | default(false)\n  ignore_errors: true\n" + END
        ),
        "changing": Role(MAKE.replace("[1] }}", "[1] }}-{{ now().timestamp() | string | hash('sha1') }}", 1) + END),
        "reading": Role(GATED.replace("name: gate", "name: theirs")),
        "silent": Role(MAKE),
        "releasing": Role(MAKE + END),
        "doubtful": Role(MAKE + REQUEUE + JOB + AS_ANOTHER + DRY + END),
        "hidden": Role(MAKE + END + "  no_log: true\n"),
    }
)


async def parts(world: World) -> set[str]:
    """Return the ConfigMaps and Secrets of a namespace, except those of Kubernetes itself."""
    found = {
        f"{gvk.kind}/{metadata_of(obj)['name']}" for gvk in (CONFIG_MAP, SECRET) for obj in await world.objects(gvk)
    }
    return found - {"ConfigMap/kube-root-ca.crt"}


async def become(world: World, expected: set[str]) -> None:
    """Wait until exactly these objects exist."""
    await eventually(lambda: parts(world), expected.__eq__, TIMEOUT_SECONDS, f"only {sorted(expected)}")


async def stay(world: World, expected: set[str]) -> None:
    """Check that these objects exist for a while."""
    await always(lambda: parts(world), expected.issubset, QUIET_SECONDS, f"{sorted(expected)} stay")


async def wants(thing: Thing, *wanted: str, **others: Any) -> None:
    """Change the parts that an object has."""
    await thing.patch({"spec": {"parts": list(wanted), **others}})


async def has_inventory(thing: Thing, *names: str) -> None:
    """Wait until the inventory names these objects."""

    def holds(obj: dict[str, Any]) -> bool:
        text = annotation_of(obj, INVENTORY) or ""
        return all(f'"{name}"' in text for name in names)

    await thing.world.wait_for(thing.gvk, thing.name, holds)


async def made(thing: Thing, *wanted: str, **others: Any) -> None:
    """Create an object with parts, and wait until its inventory has them."""
    await thing.create({"parts": list(wanted), **others})
    await has_inventory(thing, *(name.split("/")[1] for name in wanted))


async def events(world: World) -> dict[str, str]:
    """Return the message of each Event by its reason."""
    return {obj["reason"]: obj["message"] for obj in await world.objects(EVENT)}


async def reported(world: World, reason: str) -> None:
    """Wait until an Event with this reason exists."""
    await eventually(lambda: events(world), lambda found: reason in found, TIMEOUT_SECONDS, f"the Event {reason}")


async def test_part_that_is_switched_off_is_deleted_and_comes_back(world: World, things: Things) -> None:
    """The end states of S0, S1, and S0 again are those of fresh objects, and two Events tell of the deletion."""
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a")
    await become(world, {"ConfigMap/a"})
    await wants(one, "ConfigMap/a", "ConfigMap/b")
    await become(world, {"ConfigMap/a", "ConfigMap/b"})
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    found = await events(world)
    assert f"ConfigMap {world.namespace}/b" in found["ObjectsObsolete"]
    assert f"ConfigMap {world.namespace}/b" in found["Pruned"]


async def test_runs_end_when_the_set_is_stable(things: Things) -> None:
    """An object that needs nothing more runs no more."""
    one = things["plain"]
    await made(one, "ConfigMap/a")
    runs = one.runs()

    async def look() -> int:
        return one.runs()

    await always(look, lambda count: count <= runs + 1, QUIET_SECONDS, "no further run")


async def test_role_without_the_task_deletes_nothing_and_has_no_inventory(world: World, things: Things) -> None:
    one = things["silent"]
    await one.create({"parts": ["ConfigMap/a", "ConfigMap/b"]})
    await become(world, {"ConfigMap/a", "ConfigMap/b"})
    await wants(one, "ConfigMap/a")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    assert annotation_of(await one.get(), INVENTORY) is None


async def test_kinds_are_deleted_only_if_listed(world: World, things: Things) -> None:
    plain, listing = things["plain"], things["listing"]
    await made(plain, "ConfigMap/a", "Secret/kept")
    await made(listing, "ConfigMap/b", "Secret/deleted")
    await wants(plain, "ConfigMap/a")
    await wants(listing, "ConfigMap/b")
    await become(world, {"ConfigMap/a", "ConfigMap/b", "Secret/kept"})
    await stay(world, {"Secret/kept"})


async def test_report_mode_deletes_nothing(world: World, things: Things) -> None:
    one = things["reporting"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a")
    await reported(world, "ObjectsObsolete")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    found = await events(world)
    assert "the mode is report" in found["ObjectsObsolete"]
    assert "Pruned" not in found


async def test_part_that_depends_on_something_else_stays(world: World, things: Things) -> None:
    """With equal inputs, a role that names an object only sometimes keeps it."""
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: gate}}")
    one = things["gated"]
    await made(one, "ConfigMap/a")
    await world.delete(CONFIG_MAP, "gate")
    for number in range(3):
        runs = one.runs()
        await one.patch({"metadata": {"annotations": {"rolecall.dev/reconcile-requested-at": str(number)}}})
        await one.runs_at_least(runs + 1)
    await stay(world, {"ConfigMap/a"})


@pytest.mark.parametrize(("role", "doubt"), [("ending", {"ends": True}), ("ignoring", {"fails": True})])
async def test_incomplete_run_deletes_nothing(world: World, things: Things, role: str, doubt: dict[str, bool]) -> None:
    """A play that ends before the task, and one that ignores a failure, may have left out objects."""
    one = things[role]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a", **doubt)
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


@pytest.mark.parametrize("doubt", ["requeues", "starts", "dry"])
async def test_run_that_has_not_finished_or_names_in_a_dry_run_deletes_nothing(
    world: World, things: Things, doubt: str
) -> None:
    one = things["doubtful"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a", **{doubt: True})
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_run_with_other_credentials_deletes_nothing(world: World, things: Things) -> None:
    """The operator doesn't see what such a task names."""
    one = things["doubtful"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a", admin=str(one.operator.kubeconfig))
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    [line, *_] = one.messages("Nothing is pruned: the run may have left out objects")
    assert "bypasses the credentials of the run with kubeconfig" in str(line)


async def test_new_version_of_the_role_deletes_nothing(world: World, things: Things) -> None:
    one = things["releasing"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    one.write_role((MAKE + END).replace('"{{ parts }}"', '"{{ parts[:1] }}"'))
    runs = one.runs()
    await one.patch({"metadata": {"annotations": {"rolecall.dev/reconcile-requested-at": "now"}}})
    await one.runs_at_least(runs + 2)
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_hidden_options_delete_nothing(world: World, things: Things) -> None:
    one = things["hidden"]
    await one.create({"parts": ["ConfigMap/a", "ConfigMap/b"]})
    await become(world, {"ConfigMap/a", "ConfigMap/b"})
    await wants(one, "ConfigMap/a")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    assert one.messages("Nothing is pruned: the run may have left out objects")


async def test_names_that_change_in_each_run_delete_nothing_and_end(world: World, things: Things) -> None:
    one = things["changing"]
    await one.create({"parts": ["ConfigMap/a"]})
    await eventually(
        lambda: parts(world), lambda found: len(found) > 2, TIMEOUT_SECONDS, "several runs, each with its own name"
    )

    async def look() -> int:
        return one.runs()

    await eventually(look, lambda count: count >= 6, TIMEOUT_SECONDS, "the last requested run")
    await always(look, lambda count: count <= 8, QUIET_SECONDS, "the runs end")
    assert not (await events(world)).keys() & {"Pruned", "ObjectsObsolete"}


async def test_most_of_an_inventory_needs_a_confirmation(world: World, things: Things) -> None:
    one = things["plain"]
    all_parts = [f"ConfigMap/{name}" for name in "abcdef"]
    await made(one, *all_parts)
    await wants(one, "ConfigMap/a")
    await reported(world, "PruneNeedsConfirmation")
    await stay(world, set(all_parts))
    await one.patch({"metadata": {"annotations": {PRUNE: "confirm"}}})
    await become(world, {"ConfigMap/a"})
    await world.wait_for(one.gvk, "one", lambda obj: annotation_of(obj, PRUNE) is None)


async def test_empty_set_needs_a_confirmation(world: World, things: Things) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a")
    await wants(one)
    await reported(world, "PruneNeedsConfirmation")
    await stay(world, {"ConfigMap/a"})


async def test_opted_out_object_stays(world: World, things: Things) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await world.patch(CONFIG_MAP, "b", {"metadata": {"annotations": {PRUNE: "false"}}})
    await wants(one, "ConfigMap/a")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_object_with_a_second_owner_stays(world: World, things: Things) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    (other,) = await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}")
    found = await world.get(CONFIG_MAP, "b")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid_of(other)}
    references = [*metadata_of(found)["ownerReferences"], reference]
    await world.patch(CONFIG_MAP, "b", {"metadata": {"ownerReferences": references}})
    await wants(one, "ConfigMap/a")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_object_that_another_role_names_is_kept(world: World, things: Things) -> None:
    """The run of another primary reads it by name, so it is marked and stays."""
    one, reader = things["plain"], things["reading"]
    await made(one, "ConfigMap/a", "ConfigMap/theirs")
    await reader.create()
    await world.wait_for(CONFIG_MAP, "theirs", lambda obj: annotation_of(obj, PRUNE) == "false")
    await wants(one, "ConfigMap/a")
    await stay(world, {"ConfigMap/a", "ConfigMap/theirs"})


@pytest.mark.parametrize("name", ["victim", "../configmaps/victim", "../../NAMESPACE/configmaps/victim"])
async def test_forged_inventory_deletes_nothing_of_others(world: World, things: Things, name: str) -> None:
    """An entry for an object of somebody else is checked against the live object, whatever its name leads to."""
    one = things["plain"]
    await made(one, "ConfigMap/a")
    # Who may create an object may name any owner in it.
    owner = {"apiVersion": one.gvk.api_version, "kind": one.gvk.kind, "name": one.name, "uid": uid_of(await one.get())}
    metadata = json.dumps({"name": "victim", "ownerReferences": [owner]} if name != "victim" else {"name": "victim"})
    (victim,) = await world.create(f"{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}")
    text = annotation_of(await one.get(), INVENTORY) or ""
    forged_name = name.replace("NAMESPACE", world.namespace)
    entry = f'["","configmaps","{world.namespace}","{forged_name}","v1","ConfigMap","{uid_of(victim)}",1]'
    forged = text.replace('"objects":[', f'"objects":[{entry},')
    runs = one.runs()
    await one.patch({"metadata": {"annotations": {INVENTORY: forged}}, "spec": {"other": 1}})
    await one.runs_at_least(runs + 1)
    await stay(world, {"ConfigMap/a", "ConfigMap/victim"})


@pytest.mark.parametrize("text", ["{", '{"by": 1}', '{"by":"rolecall/plain","inputs":1,"objects":[]}', "x" * 200_000])
async def test_unreadable_inventory_counts_as_none(world: World, things: Things, text: str) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await one.patch({"metadata": {"annotations": {INVENTORY: text}}, "spec": {"parts": ["ConfigMap/a"]}})
    await world.wait_for(one.gvk, "one", lambda obj: '"a"' in (annotation_of(obj, INVENTORY) or ""))
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_recreated_primary_deletes_nothing_of_its_predecessor(world: World, things: Things) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await one.delete()
    await one.goes()
    await become(world, set())
    await made(one, "ConfigMap/a")
    await stay(world, {"ConfigMap/a"})
    with pytest.raises(NotFoundError):
        await world.get(CONFIG_MAP, "b")


async def test_paused_object_deletes_nothing(world: World, things: Things) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await one.patch({"metadata": {"annotations": {"rolecall.dev/paused": "true"}}, "spec": {"parts": ["ConfigMap/a"]}})
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    await one.patch({"metadata": {"annotations": {"rolecall.dev/paused": None}}})
    await become(world, {"ConfigMap/a"})


async def test_plan_shows_what_becomes_obsolete(world: World, things: Things, tmp_path: Path) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    edited = {**await one.get(), "spec": {"parts": ["ConfigMap/a"]}}
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    _, printed = await planned(one, "-f", str(tmp_path / "edited.json"))
    assert f"- ConfigMap {world.namespace}/b: no longer named by the role, deleted after 1s" in printed
    assert printed.endswith("1 object planned, 0 unchanged; 0 to create, 0 to change, 1 to delete\n")
    code, printed = await planned(one, one.gvk.kind, "one", "-n", world.namespace)
    assert (code, "obsolete" in printed) == (0, False)
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def planned(thing: Thing, *arguments: str) -> tuple[int, str]:
    """Run ``rolecall plan`` in the project of the operator, and return its exit code and its output."""
    environment = {**os.environ, "KUBECONFIG": str(thing.operator.kubeconfig)}
    command = [sys.executable, "-m", "rolecall", "plan", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=thing.operator.directory, env=environment, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()
