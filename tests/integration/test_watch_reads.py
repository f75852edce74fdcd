"""Reads as triggers, with roles that contain nothing about it."""

import asyncio
import math
import time
from typing import Any

import pytest

from rolecall.kube.client import Client, Selection
from rolecall.kube.errors import ForbiddenError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import GVK
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.shared import Role, Shared, Thing, Things
from tests.support.world import CONFIG_MAP, DEPLOYMENT, EVENT, TIMEOUT_SECONDS, World, always, eventually

FIRST_RUNS = 4
"""Runs of an object before the first delay of a loop."""

SECRET = GVK("", "v1", "Secret")
WATCHED = "watchReads: true"
ROLLS = """
- name: Read the password
  kubernetes.core.k8s_info:
    api_version: v1
    kind: Secret
    name: login
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: login
- name: Run the application with it
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: app, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec:
        replicas: 0
        selector: {matchLabels: {app: app}}
        template:
          metadata:
            labels: {app: app}
            annotations: {login: "{{ login.resources[0].data.password | hash('sha1') }}"}
          spec:
            containers:
              - {name: app, image: nginx}
"""
FINDS = """
- name: Look for options
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: options
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: options
- name: Say what was found
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: found, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {colour: "{{ options.resources[0].data.colour if options.resources else 'none' }}"}
"""
COLLECTS = """
- name: List the members
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    label_selectors: [member in (yes, certainly)]
  register: members
- name: Say who they are
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: members, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {names: "{{ members.resources | map(attribute='metadata.name') | sort | join(' ') }}"}
"""
ANSWERS = """
- name: Read the other one
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: THEIRS
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: theirs
- name: Answer with the next number
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: OURS
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: {rolecall.dev/adopt: "false"}
      data: {number: "number {{ number | int + 1 }}"}
  vars:
    number: "{{ (theirs.resources[0].data.number if theirs.resources else 'number 0').split() | last }}"
"""
SHARES = """
- name: Write down in what all share that it has run
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: shared, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {"{{ ansible_operator_meta.name }}": "{{ now() | string }}"}
"""
IGNORES = FINDS.replace("name: options", "name: ignored").replace("name: found", "name: unfound")
SHARED = Shared(
    {
        "rolling": Role(ROLLS, WATCHED),
        "finding": Role(FINDS, WATCHED),
        "collecting": Role(COLLECTS, WATCHED),
        "ping": Role(ANSWERS.replace("THEIRS", "pong").replace("OURS", "ping"), WATCHED),
        "pong": Role(ANSWERS.replace("THEIRS", "ping").replace("OURS", "pong"), WATCHED),
        "sharing": Role(SHARES, WATCHED),
        "without": Role(IGNORES),
        "blacklisting": Role(
            IGNORES.replace("unfound", "unfound-too"), f"{WATCHED}\nblacklist:\n  - {{version: v1, kind: ConfigMap}}"
        ),
    }
)


async def data(world: World, name: str, key: str, expected: str) -> None:
    """Wait until a ConfigMap has a value."""

    def holds(obj: dict[str, Any]) -> bool:
        return (obj.get("data") or {}).get(key) == expected

    await world.wait_for(CONFIG_MAP, name, holds)


async def stay_delayed(things: list[Thing], since: float, seconds: float) -> None:
    """Check for some seconds that no object ran more often since ``since`` than delays of 1 + 2 + 4 + 8 + … s allow."""

    async def above_limit() -> int:
        delayed = math.ceil(math.log2(time.monotonic() - since + 1))
        return max(thing.runs() for thing in things) - FIRST_RUNS - delayed

    await always(above_limit, lambda runs: runs <= 0, seconds, "they run less and less often")


async def test_rotated_secret_rolls_the_application_that_uses_it(world: World, things: Things) -> None:
    """The role reads the Secret and creates a Deployment from it; no key connects them."""
    await world.create("{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {password: old}}")
    await things["rolling"].create()
    await things["rolling"].succeeds()

    async def checksum() -> Any:
        found = await world.get(DEPLOYMENT, "app")
        return found["spec"]["template"]["metadata"]["annotations"]["login"]

    before, runs = await checksum(), things["rolling"].runs()
    await world.patch(SECRET, "login", {"stringData": {"password": "new"}})
    await things["rolling"].runs_at_least(runs + 1)
    await eventually(checksum, lambda found: found != before, TIMEOUT_SECONDS, "the Deployment has the new password")
    assert things["rolling"].causes()[-1] == f"read Secret {world.namespace}/login changed"


async def test_creation_of_a_missing_read_triggers_a_run(world: World, things: Things) -> None:
    """Its changes and its deletion trigger runs too."""
    await things["finding"].create()
    await data(world, "found", "colour", "none")
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: options}, data: {colour: red}}")
    await data(world, "found", "colour", "red")
    await world.patch(CONFIG_MAP, "options", {"data": {"colour": "blue"}})
    await data(world, "found", "colour", "blue")
    await world.delete(CONFIG_MAP, "options")
    await data(world, "found", "colour", "none")


async def test_each_edit_by_a_user_triggers_a_run_without_backoff(world: World, things: Things) -> None:
    """Each run changes something, but none of them writes what the user edits, so there is no loop."""
    thing = things["finding"]
    await thing.create()
    await thing.succeeds()
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: options}\ndata: {colour: none}\n"
    await world.create(manifest)
    for number in range(8):
        await world.patch(CONFIG_MAP, "options", {"data": {"colour": f"color-{number}"}})
        await data(world, "found", "colour", f"color-{number}")
    assert "ReconcileDelayed" not in {event["reason"] for event in await world.objects(EVENT)}


async def test_object_that_starts_to_match_a_listed_selector_triggers_a_run(world: World, things: Things) -> None:
    """The role listed a selector; an object gets one of its labels and loses it again."""
    for name in ("one", "two"):
        await world.create(f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}")
    await things["collecting"].create()
    await data(world, "members", "names", "")
    await world.patch(CONFIG_MAP, "two", {"metadata": {"labels": {"member": "certainly"}}})
    await data(world, "members", "names", "two")
    await world.patch(CONFIG_MAP, "two", {"metadata": {"labels": {"member": "no"}}})
    await data(world, "members", "names", "")


NAMED_ONLY = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [login], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
"""


async def test_permission_on_one_name_suffices_to_watch_it_without_its_content(
    world: World, defined: ControlPlane
) -> None:
    """An object read by name is listed and watched by name, and of a Secret only the metadata is sent."""
    await world.create(NAMED_ONLY)
    (made,) = await world.create("{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {password: x}}")
    kubeconfig = await asyncio.to_thread(defined.service_account_kubeconfig, world.namespace, "reader")
    async with await Client.connect(str(kubeconfig)) as client:
        named = Selection("login", metadata_only=True)

        async def listed() -> list[dict[str, Any]]:
            try:
                pages = client.list_pages(SECRET, world.namespace, named)
                return [obj async for page, _ in pages for obj in page]
            except ForbiddenError:
                return []

        [found] = await eventually(listed, bool, TIMEOUT_SECONDS, "the Role is in force")
        assert (found["kind"], metadata_of(found)["name"], "data" in found) == ("Secret", "login", False)
        await world.patch(SECRET, "login", {"stringData": {"password": "y"}})
        version = resource_version_of(made)
        async for kind, obj in client.watch(SECRET, world.namespace, version, TIMEOUT_SECONDS, named):
            assert (kind, obj["kind"], "data" in obj) == ("MODIFIED", "Secret", False)
            break
        with pytest.raises(ForbiddenError):
            async for _ in client.list_pages(SECRET, world.namespace, Selection()):
                pass


async def test_reads_trigger_nothing_without_watch_reads_or_with_a_blacklist(world: World, things: Things) -> None:
    """The runs read an object that is created later."""
    for role in ("without", "blacklisting"):
        await things[role].create()
        await things[role].succeeds()

    async def runs() -> list[int]:
        return [things[role].runs() for role in ("without", "blacklisting")]

    before = await runs()  # an object may need a second run, for example because its status met a conflict
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: ignored}, data: {colour: red}}")
    await always(runs, before.__eq__, 4.0, "nobody runs again")


async def test_two_roles_that_read_each_others_writes_back_off(world: World, things: Things) -> None:
    """Without backoff they would run indefinitely; an Event names the writer and the object that waits."""
    start = time.monotonic()
    both = [things["ping"], things["pong"]]
    for thing in both:
        await thing.create()
    for thing in both:
        await thing.runs_at_least(3)

    async def told() -> list[str]:
        events = await world.objects(EVENT)
        return [event["message"] for event in events if event["reason"] == "ReconcileDelayed"]

    def names_both(messages: list[str]) -> bool:
        """Return whether an Event for one of the two names the object that was read and its writer."""
        names = [
            (f"ConfigMap {world.namespace}/{role}", f"{things[role].gvk.kind} {world.namespace}/one")
            for role in ("ping", "pong")
        ]
        return any(read in text and writer in text for text in messages for read, writer in names)

    await eventually(told, names_both, TIMEOUT_SECONDS, "an Event names both objects")
    await stay_delayed(both, start, 10.0)


async def test_objects_that_share_an_object_that_each_writes_back_off(world: World, things: Things) -> None:
    """Each write triggers all others."""
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}}")
    start = time.monotonic()
    all_of_them = [things.named("sharing", f"number-{number}") for number in range(4)]
    for thing in all_of_them:
        await thing.create()
    for thing in all_of_them:
        await thing.runs_at_least(3)
    await stay_delayed(all_of_them, start, 10.0)
