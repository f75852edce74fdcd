"""Which objects say that a run has created them, and that prune deletes only these, on a real API server.

The role does what its object says: it writes each definition with the write that the spec names. So a test sees for
all writes of Ansible and kubectl which objects get a mark, who loses it, and what is deleted after an edit.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rolecall.kube.errors import KubeError, NotFoundError
from rolecall.kube.metadata import annotation_of, metadata_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION, mark_for
from tests.integration.pruned import END, PRUNE, QUIET_SECONDS, ROLE, has_inventory, reported, run_again
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.things import THING
from tests.support.world import CONFIG_MAP, DEPLOYMENT, TIMEOUT_SECONDS, World, always, eventually

CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")
WRITE = """
- name: Create it, or merge it into what exists
  kubernetes.core.k8s: {definition: "{{ item }}"}
  loop: "{{ definitions }}"
  when: write == "merge"
- name: Create or replace it
  kubernetes.core.k8s: {definition: "{{ item }}", force: true}
  loop: "{{ definitions }}"
  when: write == "replace"
- name: Apply it as a client
  kubernetes.core.k8s: {definition: "{{ item }}", apply: true}
  loop: "{{ definitions }}"
  when: write == "client"
- name: Let the API server apply it
  kubernetes.core.k8s:
    definition: "{{ item }}"
    apply: true
    server_side_apply: {field_manager: role, force_conflicts: true}
  loop: "{{ definitions }}"
  when: write == "apply"
- name: Apply it with kubectl
  ansible.builtin.command: {argv: "{{ ['kubectl', 'apply', '-f', '-'] + options }}", stdin: "{{ item | to_json }}"}
  loop: "{{ definitions }}"
  when: write in ("kubectl", "kubectl server")
  vars: {options: "{{ ['--server-side', '--force-conflicts'] if write == 'kubectl server' else [] }}"}
  changed_when: false
- name: Put it
  vars:
    place: "/apis/{{ item.apiVersion }}/namespaces/{{ item.metadata.namespace }}/{{ item.kind | lower }}s"
  ansible.builtin.command:
    argv: [kubectl, -v=6, replace, --raw, "{{ place }}/{{ item.metadata.name }}", -f, "-"]
    stdin: "{{ item | to_json }}"
  loop: "{{ definitions }}"
  when: write == "put"
  changed_when: false
  register: put
- name: Set annotations like the definition
  ansible.builtin.command:
    argv: >-
      {{ ["kubectl", "annotate", "--overwrite", "-n", item.metadata.namespace, item.kind, item.metadata.name]
         + (item.metadata.annotations | default({}) | dictsort | map("join", "=") | list) }}
  loop: "{{ definitions | selectattr('metadata.annotations', 'defined') }}"
  when: write == "annotate"
  changed_when: false
- name: Set annotations by operations
  kubernetes.core.k8s_json_patch:
    api_version: "{{ item.apiVersion }}"
    kind: "{{ item.kind }}"
    name: "{{ item.metadata.name }}"
    namespace: "{{ item.metadata.namespace }}"
    patch:
      - {op: add, path: /metadata/annotations, value: "{{ item.metadata.annotations }}"}
      - {op: add, path: /metadata/annotations/other, value: set}
  loop: "{{ definitions | selectattr('metadata.annotations', 'defined') }}"
  when: write == "operations"
"""
ANSWERS = """
- name: Look for what the next task creates
  kubernetes.core.k8s_info:
    api_version: rbac.authorization.k8s.io/v1
    kind: Role
    name: answered
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: found
- name: Put it
  vars: {place: "/apis/rbac.authorization.k8s.io/v1/namespaces/{{ ansible_operator_meta.namespace }}"}
  ansible.builtin.command:
    argv: [kubectl, -v=6, replace, --raw, "{{ place }}/roles/answered", -f, "-"]
    stdin: '{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "answered"}}'
  changed_when: false
  register: put
- name: Check what the role has got
  ansible.builtin.assert:
    that:
      - found.resources or "201 Created" in put.stderr
      - made.annotations["rolecall.dev/made-for"].endswith("/answered:" ~ made.uid)
  vars: {made: "{{ (put.stdout | from_json).metadata }}"}
"""
READS = """
- name: Name it in some way
  ansible.builtin.command: {argv: "{{ ['kubectl', '-n', ansible_operator_meta.namespace] + words }}"}
  changed_when: false
  failed_when: false
- name: Scale it as a module does
  kubernetes.core.k8s_scale:
    api_version: apps/v1
    kind: Deployment
    name: "{{ theirs }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    replicas: 0
  when: scales | default(false)
- name: Read it
  kubernetes.core.k8s_info:
    api_version: apps/v1
    kind: Deployment
    name: "{{ theirs }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
  when: reads | default(false)
- name: Go on for a while
  ansible.builtin.wait_for: {timeout: "{{ seconds }}"}
  when: seconds is defined
- name: Fail
  ansible.builtin.fail: {msg: on purpose}
  when: fails | default(false)
"""
EXACT = "snakeCaseParameters: false"
SHARED = Shared(
    {
        "writing": Role(WRITE + END, EXACT),
        "patient": Role(WRITE + END.replace("1s", "8s"), EXACT),
        "answered": Role(ANSWERS + END),
        "reading": Role(READS),
    }
)
WRITES = ("merge", "replace", "client", "apply", "kubectl", "kubectl server", "put")


def definition(
    world: World, gvk: GVK, name: str, content: Mapping[str, Any] | None = None, **metadata: Any
) -> RawObject:
    """Return the definition of an object."""
    place = {"name": name, "namespace": world.namespace, **metadata}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": place, **(content or {})}


async def wants(thing: Thing, *definitions: RawObject, **others: Any) -> None:
    """Let an object have exactly these parts; it is created if it doesn't exist."""
    spec = {"definitions": list(definitions), **others}
    if await thing.world.find(thing.gvk, thing.name) is None:
        await thing.create({"write": "merge", **spec})
    else:
        await thing.patch({"spec": spec})


async def made(thing: Thing, *definitions: RawObject, **others: Any) -> None:
    """Let an object have these parts, and wait until its inventory names them."""
    await wants(thing, *definitions, **others)
    await has_inventory(thing, *(metadata_of(each)["name"] for each in definitions))


@dataclass(frozen=True, slots=True)
class Case:
    """A primary whose role uses one write, and a part of it with its name."""

    world: World
    thing: Thing
    write: str

    @property
    def name(self) -> str:
        """The name of the part."""
        return f"part-{self.thing.name}"

    @property
    def rest(self) -> RawObject:
        """What the role makes in any case."""
        return definition(self.world, ROLE, f"rest-{self.thing.name}")

    def part(self, name: str = "", **metadata: Any) -> RawObject:
        """Return the definition of a part, which is named differently for each case."""
        return definition(self.world, ROLE, f"{name}{self.name}", **metadata)

    async def begin(self, *parts: RawObject) -> None:
        """Let the role make the rest, and these parts."""
        await made(self.thing, self.rest, *parts, write=self.write)

    async def live(self, name: str = "") -> RawObject:
        """Return the part as it is."""
        return await self.world.get(ROLE, f"{name}{self.name}")

    async def mark(self, name: str = "") -> str | None:
        """Return the mark of the part."""
        return annotation_of(await self.live(name), MADE_FOR_ANNOTATION)

    async def write_again(self) -> None:
        """Let the role write another label, and wait for it."""
        await wants(self.thing, self.rest, self.part(labels={"size": "2"}))
        await self.world.wait_for(
            ROLE, self.name, lambda obj: (metadata_of(obj).get("labels") or {}).get("size") == "2"
        )

    async def is_kept(self, *names: str) -> None:
        """Check that nothing is deleted after an edit that leaves the part out."""
        await wants(self.thing, self.rest)
        await run_again(self.thing, 3)
        for name in names or ("",):
            await stays(self.world, ROLE, f"{name}{self.name}")


async def for_each_write(
    world: World, things: Things, check: Callable[[Case], Awaitable[None]], writes: Sequence[str] = WRITES
) -> None:
    """Check something for each way of writing, several at the same time."""
    limit, problems = asyncio.Semaphore(4), []

    async def one(write: str) -> None:
        async with limit:
            try:
                await check(Case(world, things.named("writing", write.replace(" ", "-")), write))
            except (AssertionError, KubeError) as error:
                problems.append(f"{write}: {error}")

    await asyncio.gather(*map(one, writes))
    assert problems == []


async def gone(world: World, gvk: GVK, name: str) -> None:
    """Wait until an object is deleted."""
    await world.wait_until_gone(gvk, name, TIMEOUT_SECONDS)


async def stays(world: World, gvk: GVK, name: str, seconds: float = QUIET_SECONDS) -> None:
    """Check that an object exists for a while."""
    await always(lambda: world.find(gvk, name), bool, seconds, f"{name} stays")


async def is_switched_off(thing: Thing, *left: RawObject) -> None:
    """Let an object have only these parts, and wait until several runs have named exactly them."""
    await wants(thing, *left)
    await run_again(thing, 3)


async def kubectl(thing: Thing, *words: str, manifest: RawObject | None = None) -> str:
    """Run kubectl like a user, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "--namespace", thing.world.namespace, *words),
        env={**os.environ, "KUBECONFIG": str(thing.operator.kubeconfig)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate(json.dumps(manifest).encode())
    assert process.returncode == 0
    return printed.decode()


def template(labels: Mapping[str, str], **others: Any) -> dict[str, Any]:
    """Return the template of a pod."""
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main"}], **others}}


LABELS = {"app": "case"}
SELECTOR = {"selector": {"matchLabels": LABELS}}
WORKLOAD = {"spec": {"replicas": 0, **SELECTOR, "template": template(LABELS)}}
JOB = {"template": template({}, restartPolicy="Never")}
TARGET = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}, "maxReplicas": 1}
PORTS = {"spec": {"ports": [{"port": 80}]}}
INGRESS = {"spec": {"defaultBackend": {"service": {"name": "none", "port": {"number": 80}}}}}
OF_RBAC = "rbac.authorization.k8s.io"
PERMITTED = {"annotations": {PRUNE: "true"}}
PLAIN: dict[str, tuple[GVK, Mapping[str, Any], Mapping[str, Any], str]] = {
    "deployment": (DEPLOYMENT, WORKLOAD, {}, "merge"),
    "daemonset": (GVK("apps", "v1", "DaemonSet"), {"spec": {**SELECTOR, "template": template(LABELS)}}, {}, "merge"),
    "service": (GVK("", "v1", "Service"), PORTS, {}, "merge"),
    "ingress": (GVK("networking.k8s.io", "v1", "Ingress"), INGRESS, {}, "merge"),
    "configmap": (CONFIG_MAP, {}, {}, "merge"),
    "serviceaccount": (GVK("", "v1", "ServiceAccount"), {}, {}, "merge"),
    "role": (ROLE, {}, {}, "merge"),
    "rolebinding": (
        GVK(OF_RBAC, "v1", "RoleBinding"),
        {"roleRef": {"apiGroup": OF_RBAC, "kind": "Role", "name": "none"}},
        {},
        "merge",
    ),
    "autoscaler": (GVK("autoscaling", "v2", "HorizontalPodAutoscaler"), {"spec": TARGET}, {}, "merge"),
    "budget": (GVK("policy", "v1", "PodDisruptionBudget"), {"spec": SELECTOR}, {}, "merge"),
    "policy": (GVK("networking.k8s.io", "v1", "NetworkPolicy"), {"spec": {"podSelector": {}}}, {}, "merge"),
    "cronjob": (
        GVK("batch", "v1", "CronJob"),
        {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB}}},
        {},
        "merge",
    ),
    "secret": (GVK("", "v1", "Secret"), {}, PERMITTED, "merge"),
    "job": (GVK("batch", "v1", "Job"), {"spec": {**JOB, "suspend": True}}, PERMITTED, "merge"),
    "statefulset": (GVK("apps", "v1", "StatefulSet"), WORKLOAD, PERMITTED, "merge"),
    "custom": (THING, {"spec": {"size": 1}}, PERMITTED, "merge"),
    "clusterrole": (CLUSTER_ROLE, {}, PERMITTED, "merge"),
    "elsewhere": (CONFIG_MAP, {}, {"namespace": "default"}, "merge"),
    "put": (ROLE, {}, {}, "put"),
    "apply": (CONFIG_MAP, {}, {}, "apply"),
    "kubectl-server": (CONFIG_MAP, {}, {}, "kubectl server"),
    "kubectl": (CONFIG_MAP, {}, {}, "kubectl"),
}
"""22 plain cases: the kind of a part, its content, its metadata, and how the role writes it."""


async def test_plain_cases_are_pruned_in_the_third_run_after_the_edit(world: World, things: Things) -> None:
    """For each kind and each write, a part that an edit switches off is deleted."""

    async def follow(case: str) -> str:
        gvk, content, given, write = PLAIN[case]
        thing, metadata = things.named("writing", case), dict(given)
        if gvk == CLUSTER_ROLE:
            metadata["namespace"] = None
        name = f"{case}-{world.namespace}"
        part = definition(world, gvk, name, content, **metadata)
        part["metadata"] = {key: value for key, value in part["metadata"].items() if value is not None}
        rest = definition(world, ROLE, f"{case}-rest")
        key = ObjectKey.of_object(part)
        await made(thing, rest, part, write=write)
        live = await world.client.get(gvk, key)
        expected = mark_for(uid_of(await thing.get()), gvk.group, gvk.kind, key, uid_of(live))
        if annotation_of(live, MADE_FOR_ANNOTATION) != expected:
            return f"{case}: the mark is {annotation_of(live, MADE_FOR_ANNOTATION)}, expected {expected}"
        before = thing.runs()
        await wants(thing, rest)
        await eventually(
            lambda: find(world, gvk, key), lambda found: found is None, TIMEOUT_SECONDS, f"{case} is deleted"
        )
        runs = thing.runs() - before
        return "" if runs <= 3 else f"{case}: deleted after {runs} runs"

    limit = asyncio.Semaphore(4)

    async def limited(case: str) -> str:
        async with limit:
            return await follow(case)

    assert [text for text in await asyncio.gather(*map(limited, PLAIN)) if text] == []


async def find(world: World, gvk: GVK, key: ObjectKey) -> RawObject | None:
    """Return an object of any namespace, None if it doesn't exist."""
    try:
        return await world.client.get(gvk, key)
    except NotFoundError:
        return None


async def test_role_gets_the_marked_object_that_its_put_has_created(world: World, things: Things) -> None:
    """The mark is written under its own name, and the role sees the status of the creation."""
    one = things["answered"]
    await one.create()
    await one.succeeds()
    live = await world.get(ROLE, "answered")
    assert annotation_of(live, MADE_FOR_ANNOTATION)
    (entry,) = [each for each in metadata_of(live)["managedFields"] if each["manager"] == "rolecall"]
    assert entry["fieldsV1"]["f:metadata"]["f:annotations"].keys() - {"."} == {f"f:{MADE_FOR_ANNOTATION}"}


async def test_no_write_removes_the_word_of_a_user(world: World, things: Things) -> None:
    async def check(case: Case) -> None:
        await case.begin(case.part())
        await world.patch(ROLE, case.name, {"metadata": {"annotations": {PRUNE: "false"}}})
        await case.write_again()
        assert annotation_of(await case.live(), PRUNE) == "false"
        await case.is_kept()

    await for_each_write(world, things, check)


@pytest.mark.parametrize("options", [(), ("--server-side", "--force-conflicts")], ids=["client", "server"])
async def test_no_write_removes_the_word_that_a_user_has_applied(
    world: World, things: Things, options: tuple[str, ...]
) -> None:
    """A later apply by a client compares with the user's definition, and would remove what only that has."""

    async def check(case: Case) -> None:
        await case.begin(case.part())
        await kubectl(case.thing, "apply", "-f", "-", *options, manifest=case.part(annotations={PRUNE: "false"}))
        await case.write_again()
        assert annotation_of(await case.live(), PRUNE) == "false"
        await case.is_kept()

    await for_each_write(world, things, check)


async def test_no_write_restores_a_mark(world: World, things: Things) -> None:
    """A user has removed it."""

    async def check(case: Case) -> None:
        await case.begin(case.part())
        await world.patch(ROLE, case.name, {"metadata": {"annotations": {MADE_FOR_ANNOTATION: None}}})
        await case.write_again()
        assert await case.mark() is None
        await case.is_kept()

    await for_each_write(world, things, check)


async def test_role_cannot_mark_what_existed_before(world: World, things: Things) -> None:
    """Whatever its definitions say, and whoever owns the object."""

    async def check(case: Case) -> None:
        await wants(case.thing, case.rest)
        uid, gvk = uid_of(await case.thing.get()), case.thing.gvk
        reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": case.thing.name, "uid": uid}
        live = await world.client.create(case.part(ownerReferences=[reference], annotations={"first": "1"}))
        mark = mark_for(uid, ROLE.group, ROLE.kind, world.key(case.name), uid_of(live))
        forged = {MADE_FOR_ANNOTATION: mark, "other": "1"}
        await wants(case.thing, case.part(annotations=forged), write=case.write)
        await world.wait_for(ROLE, case.name, lambda obj: annotation_of(obj, "other"))
        assert await case.mark() is None
        await wants(case.thing, case.rest, case.part(), write="merge")
        await run_again(case.thing, 3)
        await case.is_kept()

    await for_each_write(world, things, check, [*WRITES, "annotate", "operations"])


async def test_role_cannot_choose_the_mark_of_what_it_creates(world: World, things: Things) -> None:
    async def check(case: Case) -> None:
        await case.begin(case.part(annotations={MADE_FOR_ANNOTATION: "another:/ConfigMap:default/other"}))
        uid = uid_of(await case.live())
        expected = mark_for(uid_of(await case.thing.get()), ROLE.group, ROLE.kind, world.key(case.name), uid)
        assert await case.mark() == expected

    await for_each_write(world, things, check)


async def test_object_that_existed_before_stays(world: World, things: Things) -> None:
    async def check(case: Case) -> None:
        await world.client.create(case.part())
        await case.begin()
        await case.write_again()
        await run_again(case.thing, 3)
        assert await case.mark() is None
        await case.is_kept()

    await for_each_write(world, things, check)


async def test_adopted_object_stays(world: World, things: Things) -> None:
    """Also if the role has created it: with that annotation, it says that the object may exist without it."""

    async def check(case: Case) -> None:
        parts = [case.part(name, annotations={"rolecall.dev/adopt": "true"}) for name in ("", "new-")]
        await world.client.create(case.part())
        await case.begin()
        await wants(case.thing, case.rest, *parts)
        for name in ("", "new-"):
            await world.wait_for(ROLE, f"{name}{case.name}", owner_references_of)
        await run_again(case.thing, 3)
        await case.is_kept("", "new-")

    await for_each_write(world, things, check)


async def test_copy_of_a_part_stays(world: World, things: Things) -> None:
    """Also if the role names it in the meantime: it has the mark of the other one."""

    async def check(case: Case) -> None:
        await case.begin(case.part())
        await copy(world, await case.live(), f"copy-{case.name}")
        await wants(case.thing, case.rest, case.part(), case.part("copy-", labels={"size": "2"}))
        await run_again(case.thing, 3)
        await case.is_kept("copy-")
        await gone(world, ROLE, case.name)

    await for_each_write(world, things, check)


async def copy(world: World, source: RawObject, name: str) -> None:
    """Create an object like another one, with its owners, annotations, and labels, as tools for backups do."""
    kept = {key: metadata_of(source).get(key) for key in ("annotations", "labels", "ownerReferences")}
    await world.client.create({**source, "metadata": {"name": name, "namespace": world.namespace, **kept}})


async def test_restored_part_stays(world: World, things: Things) -> None:
    """Its mark has the uid of its predecessor, whatever the operator remembers; also after the role has named it."""

    async def check(case: Case) -> None:
        await case.begin(case.part())
        await case.thing.patch({"metadata": {"annotations": {"rolecall.dev/paused": "true"}}})
        source = await case.live()
        await world.delete(ROLE, case.name)
        await copy(world, source, case.name)
        await case.thing.patch({"metadata": {"annotations": {"rolecall.dev/paused": None}}})
        await run_again(case.thing, 3)
        await case.is_kept()
        await wants(case.thing, case.rest, case.part())
        await run_again(case.thing, 3)
        await case.is_kept()

    await for_each_write(world, things, check)


async def test_part_that_a_run_has_created_again_is_pruned(world: World, things: Things) -> None:
    """A user has deleted it, and the role has made another one."""
    one = things["writing"]
    rest, part = definition(world, ROLE, "rest"), definition(world, ROLE, "part")
    await made(one, rest, part)
    old = uid_of(await world.get(ROLE, "part"))
    await world.delete(ROLE, "part")
    await world.wait_for(ROLE, "part", lambda obj: uid_of(obj) != old)
    await run_again(one, 3)
    await wants(one, rest)
    await gone(world, ROLE, "part")


async def test_object_that_controllers_report_on_is_pruned(world: World, things: Things) -> None:
    """A change of its status is nobody's use."""
    one = things["patient"]
    rest, part = definition(world, ROLE, "rest"), definition(world, DEPLOYMENT, "part", WORKLOAD)
    await made(one, rest, part)
    await wants(one, rest)
    await reported(world, "ObjectsObsolete")
    status = {"conditions": [{"type": "Told", "status": "True", "reason": "Test", "message": "Test"}]}
    await world.patch(DEPLOYMENT, "part", {"status": status}, "status")
    await gone(world, DEPLOYMENT, "part")


@pytest.mark.parametrize("write", ["merge", "apply"])
async def test_object_that_a_user_applies_unchanged_stays(world: World, things: Things, write: str) -> None:
    """Who applies it wants it; managedFields tell of it, though nothing else changes."""
    one = things["patient"]
    rest, part = definition(world, ROLE, "rest"), definition(world, ROLE, "part", labels={"size": "1"})
    await made(one, rest, part, write=write)
    await wants(one, rest)
    await reported(world, "ObjectsObsolete")
    await kubectl(one, "apply", "--server-side", "-f", "-", manifest=part)
    await stays(world, ROLE, "part", 8 + QUIET_SECONDS)


READERS: dict[str, dict[str, Any]] = {
    "module": {"words": ["version"], "reads": True},
    "failed-run": {"words": ["get", "deployment", "NAME", "-o", "json"], "fails": True},
    "table": {"words": ["get", "deployment", "NAME"]},
    "scale": {"words": ["scale", "deployment/NAME", "--replicas=0"]},
    "module-scale": {"words": ["version"], "scales": True},
    "subresource": {"words": ["get", "--raw", "/apis/apps/v1/namespaces/SPACE/deployments/NAME/scale"]},
    "conflict": {"words": ["create", "deployment", "NAME", "--image=none"]},
    "dry-run": {"words": ["label", "deployment/NAME", "a=b", "--dry-run=server"]},
    "label": {"words": ["label", "deployment/NAME", "a=b", "--overwrite"]},
    "metadata": {"words": ["get", "deployment", "NAME", "-o", "name"]},
    "watch": {"words": ["rollout", "status", "deployment/NAME", "--timeout=5s"]},
    "selector": {"words": ["get", "deployments", "--field-selector=metadata.name=NAME"]},
    "several": {"words": ["get", "deployment/NAME", "deployment/none", "-o", "wide"]},
}
"""Ways in which a role of another object names an object."""


async def test_object_that_another_role_names_loses_its_mark_and_stays(world: World, things: Things) -> None:
    """Whatever that role does otherwise; it doesn't prune itself."""

    async def check(case: Case) -> None:
        reader = things.named("reading", case.thing.name)
        part = definition(world, DEPLOYMENT, case.name, WORKLOAD)
        await made(case.thing, case.rest, part, write="merge")
        spec = READERS[case.write]
        words = [word.replace("NAME", case.name).replace("SPACE", world.namespace) for word in spec["words"]]
        await reader.create({**spec, "words": words, "theirs": case.name})
        await world.wait_for(DEPLOYMENT, case.name, lambda obj: annotation_of(obj, MADE_FOR_ANNOTATION) is None)
        await is_switched_off(case.thing, case.rest)
        await stays(world, DEPLOYMENT, case.name)

    await for_each_write(world, things, check, list(READERS))


async def test_object_that_a_run_in_progress_has_named_stays(world: World, things: Things) -> None:
    """Its mark is removed after the run, and until then, this process remembers it."""
    one, reader = things["writing"], things["reading"]
    rest, part = definition(world, ROLE, "rest"), definition(world, DEPLOYMENT, "theirs", WORKLOAD)
    await made(one, rest, part)
    await reader.create({"words": ["label", "deployment/theirs", "a=b"], "seconds": 60})
    await world.wait_for(DEPLOYMENT, "theirs", lambda obj: "a" in (metadata_of(obj).get("labels") or {}))
    await is_switched_off(one, rest)
    assert reader.ended() == 0
    await stays(world, DEPLOYMENT, "theirs")
    await world.wait_for(DEPLOYMENT, "theirs", lambda obj: annotation_of(obj, MADE_FOR_ANNOTATION) is None)
    await is_switched_off(one, rest)
    await stays(world, DEPLOYMENT, "theirs")


async def test_object_of_two_primaries_stays(world: World, things: Things) -> None:
    """It has the mark of none of them, also after both have switched it off."""

    async def check(case: Case) -> None:
        two = things.named("writing", f"{case.thing.name}-two")
        other = definition(world, ROLE, f"rest-{two.name}")
        await case.begin(case.part())
        await wants(two, other, case.part(), write=case.write)
        await world.wait_for(ROLE, case.name, lambda obj: annotation_of(obj, MADE_FOR_ANNOTATION) is None)
        await case.is_kept()
        await is_switched_off(two, other)
        await stays(world, ROLE, case.name)

    await for_each_write(world, things, check)
