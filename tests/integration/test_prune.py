"""Pruning on a real API server: what changed inputs make obsolete is deleted, and nothing else ever is."""

import asyncio
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import annotation_of, metadata_of, resource_version_of, uid_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION, mark_for
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory
from tests.integration.pruned import (
    CONFIRM,
    END,
    MAKE,
    PRUNE,
    QUIET_SECONDS,
    REPORT,
    become,
    events,
    has_inventory,
    made,
    parts,
    reported,
    run_again,
    stay,
    wants,
)
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.things import THING
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, always, eventually

ENDPOINTS = GVK("", "v1", "Endpoints")

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
KILLED_JOB = """
- name: Kill a background job
  when: pid_file is defined
  block:
    - name: Start the job
      ansible.builtin.shell: {cmd: "echo $PPID > {{ pid_file }}; exec sleep 60"}
      async: 1000
      poll: 0
      changed_when: false
      register: job
    - name: Kill its module
      ansible.builtin.shell: {cmd: "until test -s {{ pid_file }}; do sleep 0.1; done; kill -9 $(cat {{ pid_file }})"}
      changed_when: false
    - name: Wait for its end
      ansible.builtin.async_status: {jid: "{{ job.ansible_job_id }}"}
      register: ended
      until: ended.finished | bool
      retries: 100
      delay: 0.2
      failed_when: false
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
LABELLED = """
- name: Make a part unless a label of the primary says otherwise
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: labelled, namespace: "{{ ansible_operator_meta.namespace }}"}
  vars: {primary: "{{ lookup('vars', '_test_rolecall_dev_' ~ 'KIND' | lower) }}"}
  when: (primary.metadata.labels | default({})).part | default('') != 'off'
"""
WAITS = """
- name: Look for what the part needs
  kubernetes.core.k8s_info:
    api_version: "{{ api | default('test.rolecall.dev/v1') }}"
    kind: "{{ kind | default('Thing') }}"
    name: needed
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: needed
- name: Make what needs it
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: needing, namespace: "{{ ansible_operator_meta.namespace }}"}
  when: needs | default(true) and needed.resources | to_json is search(final)
"""
FAILS = """
- name: Make a part that is switched on, or needed because of the gate
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: extra, namespace: "{{ ansible_operator_meta.namespace }}"}
  when: extra or gate.resources | length > 0
- name: Fail while there is the gate
  ansible.builtin.fail: {msg: on purpose}
  when: gate.resources | length > 0
"""
PERMIT = MAKE.replace("metadata: {", "metadata: {annotations: {rolecall.dev/prune: 'true'}, ").replace(
    "  loop:", '      spec: "{{ claim_spec | default(omit) }}"\n  loop:'
)
CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
PATIENT = END.replace("1s", "8s")
SHARED = Shared(
    {
        "plain": Role(MAKE + END),
        "permitting": Role(PERMIT + END, "snakeCaseParameters: false"),
        "reporting": Role(MAKE + REPORT),
        "gated": Role(GATED + MAKE + "  when: gate.resources | length > 0\n" + END),
        "ending": Role(MAKE + "- ansible.builtin.meta: end_play\n  when: ends | default(false)\n" + END),
        "ignoring": Role(
            MAKE + "- ansible.builtin.fail:\n  when: fails | default(false)\n  ignore_errors: true\n" + END
        ),
        "changing": Role(MAKE.replace("[1] }}", "[1] }}-{{ now().timestamp() | string | hash('sha1') }}", 1) + END),
        "silent": Role(MAKE),
        "releasing": Role(MAKE + END),
        "doubtful": Role(MAKE + REQUEUE + JOB + KILLED_JOB + AS_ANOTHER + DRY + END),
        "hidden": Role(MAKE + END + "  no_log: true\n"),
        "labelled": Role(MAKE + LABELLED + END),
        "waiting": Role(MAKE + WAITS + END),
        "failing": Role(GATED + MAKE + FAILS + PATIENT),
        "old": Role(MAKE + END.replace("mode: delete", "kinds: [{kind: Secret}]")),
    }
)


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
    assert annotation_of(await one.get(), INVENTORY_ANNOTATION) is None


async def test_other_kinds_are_deleted_only_if_their_definitions_permit_it(world: World, things: Things) -> None:
    plain, permitting = things["plain"], things["permitting"]
    await plain.create({"parts": ["ConfigMap/a", "Secret/kept"]})
    await has_inventory(plain, "a")
    await made(permitting, "ConfigMap/b", "Secret/deleted")
    await wants(plain, "ConfigMap/a")
    await wants(permitting, "ConfigMap/b")
    await become(world, {"ConfigMap/a", "ConfigMap/b", "Secret/kept"})
    await stay(world, {"Secret/kept"})


async def test_claim_is_never_deleted(world: World, things: Things) -> None:
    """What an author writes into its definition permits nothing."""
    one = things["permitting"]
    await made(one, "ConfigMap/a", "ConfigMap/gone")
    await one.patch({"spec": {"parts": ["PersistentVolumeClaim/data"], "claim_spec": CLAIM_SPEC}})
    await become(world, {"ConfigMap/a", "ConfigMap/gone", "PersistentVolumeClaim/data"})
    await one.patch({"spec": {"parts": ["ConfigMap/a", "ConfigMap/gone"], "claim_spec": None}})
    await run_again(one, 2)
    await wants(one, "ConfigMap/a")
    await become(world, {"ConfigMap/a", "PersistentVolumeClaim/data"})
    await stay(world, {"PersistentVolumeClaim/data"})


async def test_option_of_the_first_edition_fails_and_names_the_annotation(things: Things) -> None:
    one = things["old"]
    await one.create({"parts": []})
    await one.fails('rolecall.dev/prune: "true"')


async def digest_in(world: World, reason: str = "PruneProposed") -> str:
    """Return the digest that an Event asks a person to write."""
    found = re.search(rf"{re.escape(CONFIRM)}\W*([0-9a-f]{{16}})\b", await reported(world, reason))
    assert found is not None
    return found[1]


async def confirm(thing: Thing, digest: str) -> None:
    """Confirm a proposal like a person, and wait until the operator has removed the confirmation."""
    await thing.patch({"metadata": {"annotations": {CONFIRM: digest}}})
    await thing.world.wait_for(thing.gvk, thing.name, lambda obj: annotation_of(obj, CONFIRM) is None)


async def test_report_mode_proposes_and_the_right_confirmation_deletes(world: World, things: Things) -> None:
    """The default mode: a digest of something else deletes nothing, and each is removed."""
    one = things["reporting"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await confirm(one, "0123456789abcdef")
    await wants(one, "ConfigMap/a")
    digest = await digest_in(world)
    message = (await events(world))["PruneProposed"]
    assert f"ConfigMap {world.namespace}/b" in message
    assert "the mode is report" in message
    await confirm(one, "0123456789abcdef")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    assert not (await events(world)).keys() & {"Pruned", "ObjectsObsolete"}
    await confirm(one, digest)
    await become(world, {"ConfigMap/a"})
    assert f"ConfigMap {world.namespace}/b" in await reported(world, "Pruned")


async def test_used_confirmation_permits_nothing_further(world: World, things: Things) -> None:
    one = things["reporting"]
    await made(one, "ConfigMap/a", "ConfigMap/b", "ConfigMap/c")
    await wants(one, "ConfigMap/a", "ConfigMap/b")
    first = await digest_in(world)
    await confirm(one, first)
    await become(world, {"ConfigMap/a", "ConfigMap/b"})
    await wants(one, "ConfigMap/a")
    await proposes(one, "b")
    await confirm(one, first)
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_confirmation_of_an_earlier_proposal_deletes_nothing(world: World, things: Things) -> None:
    """A person has seen that one object goes, and now two would."""
    one = things["reporting"]
    await made(one, "ConfigMap/a", "ConfigMap/b", "ConfigMap/c")
    await wants(one, "ConfigMap/a", "ConfigMap/b")
    first = await proposes(one, "c")
    await wants(one, "ConfigMap/a")
    second = await proposes(one, "b", "c")
    assert first != second
    await confirm(one, first)
    await stay(world, {"ConfigMap/a", "ConfigMap/b", "ConfigMap/c"})
    await confirm(one, second)
    await become(world, {"ConfigMap/a"})


async def proposes(thing: Thing, *names: str) -> str:
    """Wait until the deletion of exactly these objects is proposed, and return what confirms it."""

    def holds(obj: dict[str, Any]) -> bool:
        found = Inventory.of(obj)
        return bool(found.confirm) and {each.id.name for each in found.obsolete} == set(names)

    return Inventory.of(await thing.world.wait_for(thing.gvk, thing.name, holds)).confirm


async def test_part_that_depends_on_something_else_stays(world: World, things: Things) -> None:
    """With equal inputs, a role that names an object only sometimes keeps it."""
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: gate}}")
    one = things["gated"]
    await made(one, "ConfigMap/a")
    await world.delete(CONFIG_MAP, "gate")
    await run_again(one, 3)
    await stay(world, {"ConfigMap/a"})


async def test_part_that_depends_on_a_label_of_the_primary_stays(world: World, things: Things) -> None:
    """Labels are no inputs, so the role names the object only sometimes."""
    one = things["labelled"]
    await made(one, "ConfigMap/a")
    await has_inventory(one, "labelled")
    await one.patch({"metadata": {"labels": {"part": "off"}}})
    await run_again(one, 3)
    await wants(one, "ConfigMap/a", "ConfigMap/b")
    await stay(world, {"ConfigMap/a", "ConfigMap/labelled"})


STATES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "phase": (
        THING.api_version,
        '"phase": "Ready"',
        {"status": {"phase": "Ready"}},
        {"status": {"phase": "Creating"}},
    ),
    "available": (
        THING.api_version,
        '"status": "True"',
        {"status": {"conditions": [{"type": "Available", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Available", "status": "False"}]}},
    ),
    "progressing": (
        THING.api_version,
        '"status": "False"',
        {"status": {"conditions": [{"type": "Progressing", "status": "False"}]}},
        {"status": {"conditions": [{"type": "Progressing", "status": "True"}]}},
    ),
    "endpoints": ("v1", '"ip"', {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}, {"subsets": []}),
}
"""For a kind of state: the version, what the role looks for, and the object in its final state and in another one."""


async def set_needed(world: World, state: str, *, is_final: bool) -> None:
    """Make what a part needs, in this state."""
    api_version, _, final, other = STATES[state]
    gvk = THING if api_version == THING.api_version else ENDPOINTS
    if not await world.find(gvk, "needed"):
        await world.create(f"{{apiVersion: {api_version}, kind: {gvk.kind}, metadata: {{name: needed}}}}")
    await world.patch(gvk, "needed", final if is_final else other, "status" if gvk == THING else "")


@pytest.mark.parametrize("state", STATES)
async def test_nothing_is_deleted_while_something_is_not_final(world: World, things: Things, state: str) -> None:
    """The role makes a part only when another object is ready; also if the spec changes while it isn't."""
    one, (api_version, final, *_) = things["waiting"], STATES[state]
    kind = "Endpoints" if state == "endpoints" else "Thing"
    await set_needed(world, state, is_final=True)
    await made(one, "ConfigMap/a", final=final, api=api_version, kind=kind)
    await has_inventory(one, "needing")
    await set_needed(world, state, is_final=False)
    await wants(one, "ConfigMap/a", "ConfigMap/b")
    assert "needed" in await reported(world, "PruneWaits")
    await stay(world, {"ConfigMap/a", "ConfigMap/needing"})
    await set_needed(world, state, is_final=True)
    await run_again(one, 3)
    await stay(world, {"ConfigMap/a", "ConfigMap/needing"})
    await wants(one, "ConfigMap/a", needs=False)
    await become(world, {"ConfigMap/a"})


@pytest.mark.parametrize("state", ["phase", "endpoints"])
async def test_object_that_is_never_final_holds_up_nothing(world: World, things: Things, state: str) -> None:
    """It wasn't final for the same reason when everything was named."""
    one, (api_version, *_) = things["waiting"], STATES[state]
    kind = "Endpoints" if state == "endpoints" else "Thing"
    await set_needed(world, state, is_final=False)
    await made(one, "ConfigMap/a", final="needed", api=api_version, kind=kind)
    await has_inventory(one, "needing")
    await wants(one, "ConfigMap/a", needs=False)
    await become(world, {"ConfigMap/a"})


async def test_failed_run_that_names_a_part_keeps_it(world: World, things: Things) -> None:
    """Any run with the present inputs counts, until they change."""
    one = things["failing"]
    await made(one, "ConfigMap/a", extra=True)
    await has_inventory(one, "extra")
    await wants(one, "ConfigMap/a", extra=False)
    await reported(world, "ObjectsObsolete")
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: gate}}")
    await run_again(one)
    await one.fails("on purpose")
    await world.delete(CONFIG_MAP, "gate")
    await run_again(one, 2)
    await stay(world, {"ConfigMap/a", "ConfigMap/extra"}, 8 + QUIET_SECONDS)
    await wants(one, "ConfigMap/a", extra=False, other=1)
    await stay(world, {"ConfigMap/a", "ConfigMap/extra"}, 8 + QUIET_SECONDS)  # the role names it only sometimes


async def test_part_that_a_person_has_changed_stays(world: World, things: Things) -> None:
    """Somebody has use for it."""
    one = things["failing"]
    await made(one, "ConfigMap/a", extra=True)
    await has_inventory(one, "extra")
    await wants(one, "ConfigMap/a", extra=False)
    await reported(world, "ObjectsObsolete")
    await world.patch(CONFIG_MAP, "extra", {"metadata": {"labels": {"used": "true"}}})
    await stay(world, {"ConfigMap/a", "ConfigMap/extra"}, 8 + QUIET_SECONDS)
    assert "Pruned" not in await events(world)


@pytest.mark.parametrize(("role", "doubt"), [("ending", {"ends": True}), ("ignoring", {"fails": True})])
async def test_incomplete_run_deletes_nothing(world: World, things: Things, role: str, doubt: dict[str, bool]) -> None:
    """A play that ends before the task, and one that ignores a failure, may have left out objects."""
    one = things[role]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a", **doubt)
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


@pytest.mark.parametrize("doubt", [{"requeues": True}, {"starts": True}, {"pid_file": "pid"}, {"dry": True}], ids=str)
async def test_run_that_has_not_finished_or_names_in_a_dry_run_deletes_nothing(
    world: World, things: Things, tmp_path: Path, doubt: dict[str, Any]
) -> None:
    one = things["doubtful"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    if "pid_file" in doubt:
        doubt = {"pid_file": str(tmp_path / "pid")}
    await wants(one, "ConfigMap/a", **doubt)
    await run_again(one, 2)
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_run_with_other_credentials_deletes_nothing(world: World, things: Things) -> None:
    """The operator doesn't see what such a task names."""
    one = things["doubtful"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await wants(one, "ConfigMap/a", admin=str(one.operator.kubeconfig))
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    [line, *_] = one.messages("Nothing is pruned: the run may have left out objects")
    assert "bypasses the credentials of the run with kubeconfig" in str(line)


async def test_new_version_of_the_role_only_proposes(world: World, things: Things) -> None:
    """Also if the spec changes later, or at the same time: a person must see what the new role leaves out."""
    one = things["releasing"]
    await made(one, "ConfigMap/a", "ConfigMap/b", "ConfigMap/c")
    one.write_role((MAKE + END).replace('"{{ parts }}"', "\"{{ parts | difference(['ConfigMap/b']) }}\""))
    await run_again(one)
    await proposes(one, "b")
    assert "role or its variables changed" in (await events(world))["PruneProposed"]
    await stay(world, {"ConfigMap/a", "ConfigMap/b", "ConfigMap/c"})
    await wants(one, "ConfigMap/a", "ConfigMap/b")
    await become(world, {"ConfigMap/a", "ConfigMap/b"})  # c was the user's edit
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    await confirm(one, await proposes(one, "b"))
    await become(world, {"ConfigMap/a"})


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
    assert not (await events(world)).keys() & {"Pruned", "ObjectsObsolete", "PruneProposed"}


async def test_most_of_an_inventory_needs_a_confirmation(world: World, things: Things) -> None:
    one = things["plain"]
    all_parts = [f"ConfigMap/{name}" for name in "abcdef"]
    await made(one, *all_parts)
    await wants(one, "ConfigMap/a")
    digest = await digest_in(world)
    await stay(world, set(all_parts))
    await confirm(one, digest)
    await become(world, {"ConfigMap/a"})


async def test_empty_set_needs_a_confirmation(world: World, things: Things) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a")
    await wants(one)
    await reported(world, "PruneProposed")
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


FORGED_NAMES = ("victim", "../configmaps/victim", "../../NAMESPACE/configmaps/victim")
PAUSED = "rolecall.dev/paused"


async def config_map(thing: Thing, name: str, marked_uid: str | None, *, is_owned: bool = True) -> RawObject:
    """Create a ConfigMap by hand, with a mark for the primary with this uid."""
    uid = uid_of(await thing.get())
    owner = {"apiVersion": thing.gvk.api_version, "kind": thing.gvk.kind, "name": thing.name, "uid": uid}
    metadata = {"name": name, "ownerReferences": [owner] if is_owned else []}
    (found,) = await thing.world.create(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    if marked_uid:
        mark = mark_for(marked_uid, "", "ConfigMap", thing.world.key(name), uid_of(found))
        await thing.world.patch(CONFIG_MAP, name, {"metadata": {"annotations": {MADE_FOR_ANNOTATION: mark}}})
    return await thing.world.get(CONFIG_MAP, name)


def entry_of(obj: RawObject, **others: str) -> list[Any]:
    """Return the entry of a ConfigMap that has long been obsolete, with other plurals, names, or kinds."""
    found = {"plural": "configmaps", "name": metadata_of(obj)["name"], "kind": "ConfigMap"} | others
    namespace = metadata_of(obj)["namespace"]
    return ["", found["plural"], namespace, found["name"], "v1", found["kind"], uid_of(obj), 1, False, ""]


async def find_note(thing: Thing, *entries: list[Any], **others: Any) -> None:
    """Let the operator find a note that it hasn't written for a paused object, and start to reconcile this.

    It is the inventory of another object of the kind, which says that the role is the same, with other entries.
    """
    other = replace(thing, name="other")
    await made(other, "ConfigMap/others")
    note = json.loads(annotation_of(await other.get(), INVENTORY_ANNOTATION) or "") | {"objects": entries} | others
    await thing.patch({"spec": {"other": 1}})
    await thing.patch({"metadata": {"annotations": {INVENTORY_ANNOTATION: json.dumps(note), PAUSED: None}}})


async def test_found_note_of_an_own_object_permits_its_deletion(world: World, things: Things) -> None:
    """A new process has only the note and the marks; without this, the next tests couldn't fail."""
    one = things["plain"]
    primary = await one.create({"parts": ["ConfigMap/a"]}, annotations={PAUSED: "true"})
    await find_note(one, entry_of(await config_map(one, "victim", uid_of(primary))))
    await become(world, {"ConfigMap/a", "ConfigMap/others"})


@pytest.mark.parametrize("name", FORGED_NAMES)
@pytest.mark.parametrize("mark", ["", "a", "another"])
async def test_forged_inventory_deletes_nothing_of_others(world: World, things: Things, name: str, mark: str) -> None:
    """An entry for an object of somebody else is checked against the live object, whatever its name leads to.

    An object has no mark, or that of another one, as a copy has, or names another primary.
    """
    one = things["plain"]
    uid = uid_of(await one.create({"parts": ["ConfigMap/a"]}, annotations={PAUSED: "true"}))
    # Who may create an object may name any owner in it.
    marked = {"": None, "a": uid, "another": "another"}[mark]
    victim = await config_map(one, "victim", marked, is_owned=name != "victim" or bool(mark))
    if mark == "a":
        copied = {MADE_FOR_ANNOTATION: mark_for(uid, "", "ConfigMap", world.key("a"), uid_of(victim))}
        await world.patch(CONFIG_MAP, "victim", {"metadata": {"annotations": copied}})
    await find_note(one, entry_of(victim, name=name.replace("NAMESPACE", world.namespace)))
    await has_inventory(one, "a")
    await run_again(one, 2)
    await stay(world, {"ConfigMap/a", "ConfigMap/victim"})


@pytest.mark.parametrize(
    ("plural", "kind"), [("configmaps", "Secret"), ("configmaps", "Namespace"), ("x", "Secret"), ("x", "ConfigMap")]
)
async def test_forged_kind_or_plural_deletes_nothing(world: World, things: Things, plural: str, kind: str) -> None:
    """An entry whose plural isn't that of its kind can't come from a run, so that it doesn't count as not named."""
    one = things["plain"]
    uid = uid_of(await one.create({"parts": ["ConfigMap/a"]}, annotations={PAUSED: "true"}))
    live = await config_map(one, "a", uid)
    await find_note(one, entry_of(live, plural=plural, kind=kind))
    await has_inventory(one, "a")
    await run_again(one, 2)
    await stay(world, {"ConfigMap/a"})
    assert resource_version_of(await world.get(CONFIG_MAP, "a")) == resource_version_of(live)


async def test_forged_time_deletes_nothing_early(world: World, things: Things) -> None:
    """The time in a note may be wrong, so this process must have known it too."""
    one = things["failing"]
    await made(one, "ConfigMap/a", extra=True)
    await has_inventory(one, "extra")
    await wants(one, "ConfigMap/a", extra=False)
    await reported(world, "ObjectsObsolete")
    found = json.loads(annotation_of(await one.get(), INVENTORY_ANNOTATION) or "")
    for each in found["objects"]:
        each[7] = each[7] and 1
    await one.patch({"metadata": {"annotations": {INVENTORY_ANNOTATION: json.dumps(found)}}})
    await run_again(one)
    await stay(world, {"ConfigMap/a", "ConfigMap/extra"}, 5)


async def test_inventory_of_the_first_format_only_proposes(world: World, things: Things) -> None:
    """Its runs have left no digest of the role, and so nobody knows whether a person's edit is the reason."""
    one = things["plain"]
    uid = uid_of(await one.create({"parts": ["ConfigMap/a"]}, annotations={PAUSED: "true"}))
    live = await config_map(one, "b", uid)
    await find_note(one, [*entry_of(live)[:7], 0], spec="", role="", generation=0, inputs="0" * 32, stable="")
    await proposes(one, "b")
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


@pytest.mark.parametrize("text", ["{", '{"by": 1}', '{"by":"rolecall/plain","inputs":1,"objects":[]}', "x" * 200_000])
async def test_unreadable_inventory_counts_as_none(world: World, things: Things, text: str) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    await one.patch({"metadata": {"annotations": {INVENTORY_ANNOTATION: text}}, "spec": {"parts": ["ConfigMap/a"]}})
    await world.wait_for(one.gvk, "one", lambda obj: '"a"' in (annotation_of(obj, INVENTORY_ANNOTATION) or ""))
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})


async def test_object_that_was_marked_by_hand_is_pruned(world: World, things: Things) -> None:
    """As the guide says: without the object's uid, which the next complete run adds."""
    one = things["plain"]
    uid = uid_of(await one.create({"parts": ["ConfigMap/a", "ConfigMap/b"]}, annotations={PAUSED: "true"}))
    for name in ("a", "b"):
        await config_map(one, name, None)
    marks = {MADE_FOR_ANNOTATION: mark_for(uid, "", "ConfigMap", world.key("b"))}
    await world.patch(CONFIG_MAP, "b", {"metadata": {"annotations": marks}})
    await one.patch({"metadata": {"annotations": {PAUSED: None}}})
    await has_inventory(one, "b")
    await wants(one)
    await proposes(one, "b")
    await wants(one, "ConfigMap/a")
    await become(world, {"ConfigMap/a"})


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
    await one.patch({"metadata": {"annotations": {PAUSED: "true"}}, "spec": {"parts": ["ConfigMap/a"]}})
    await stay(world, {"ConfigMap/a", "ConfigMap/b"})
    await one.patch({"metadata": {"annotations": {PAUSED: None}}})
    await become(world, {"ConfigMap/a"})


async def test_plan_shows_what_becomes_obsolete(world: World, things: Things, tmp_path: Path) -> None:
    one = things["plain"]
    await made(one, "ConfigMap/a", "ConfigMap/b")
    edited = {**await one.get(), "spec": {"parts": ["ConfigMap/a"]}}
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    _, printed = await planned(one, "-f", str(tmp_path / "edited.json"))
    assert f"- ConfigMap {world.namespace}/b: no longer named by the role, deleted after " in printed
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
