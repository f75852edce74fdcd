"""Operators with shards: one reconciles each object, also when operators join, die, or replace a single leader.

A run holds a lock of its object, so that a concurrent run of the same object is detected.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.metadata import generation_of
from rolecall.kube.references import ObjectKey
from rolecall.runner.election.elector import LEASE
from rolecall.runner.election.membership import shard_of
from rolecall.runner.runs.workspace import workspaces_of
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.operators import Operator
from tests.static.repository import documents
from tests.support.things import THING, write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually, is_true, names

pytestmark = pytest.mark.alone
RBAC = "rbac.authorization.k8s.io/v1"
SHARDS = 4
NAMES = [f"thing-{number:02}" for number in range(12)]
MANIFEST = "{apiVersion: test.rolecall.dev/v1, kind: Thing, metadata: {name: NAME}, spec: {size: 1}}"
TASKS = """
- name: Hold the lock of the object for a moment
  ansible.builtin.shell: |
    exec 9>"$FOLDER/$NAME.lock"
    flock --nonblock 9 || echo "$NAME" >> "$FOLDER/overlaps"
    echo "$OPERATOR $SIZE" >> "$FOLDER/$NAME.runs"
    sleep 0.3
  environment:
    FOLDER: LOCKS
    NAME: "{{ ansible_operator_meta.name }}"
    SIZE: "{{ size }}"
    OPERATOR: ORIGIN
"""


class Replicas:
    """Several operators, each with its own directory, and the locks of all their runs."""

    def __init__(self, directory: Path, kubeconfig: Path, world: World) -> None:
        self.locks = directory / "locks"
        self.locks.mkdir()
        self.world = world
        self.all: list[Operator] = []
        self._directory, self._kubeconfig = directory, kubeconfig

    def start(self, *flags: str) -> Operator:
        """Start another operator that takes part in the election."""
        name = f"replica-{len(self.all)}"
        directory = self._directory / name
        directory.mkdir()
        write_project(directory, TASKS.replace("LOCKS", str(self.locks)).replace("ORIGIN", name))
        election = (
            "--leader-elect",
            "--leader-election-id=lock",
            f"--leader-election-namespace={self.world.namespace}",
        )
        others = ("--reconcile-period=1h", f"--work-dir={directory / 'work'}")
        operator = Operator(directory, self._kubeconfig, self.world.namespace, (*election, *others, *flags))
        operator.start()
        self.all.append(operator)
        return operator

    def overlaps(self) -> str:
        """Return the objects that had two runs at the same time."""
        file = self.locks / "overlaps"
        return file.read_text() if file.exists() else ""

    def runs(self, name: str) -> list[str]:
        """Return the runs of an object: the replica and the size of each."""
        file = self.locks / f"{name}.runs"
        return file.read_text().splitlines() if file.exists() else []

    def workers(self) -> dict[int, set[str]]:
        """Return which replicas have reconciled objects of each shard."""
        found: dict[int, set[str]] = {}
        for name in NAMES:
            found.setdefault(_shard(name, self.world.namespace), set()).update(
                run.split()[0] for run in self.runs(name)
            )
        return found

    async def holders(self) -> dict[int, str]:
        """Return the holder of each shard by the Leases, excluding holders without their own Lease."""
        specs = {lease["metadata"]["name"]: lease["spec"] for lease in await self.world.objects(LEASE)}
        living = {spec["holderIdentity"] for name, spec in specs.items() if "-member-" in name and _is_held(spec)}
        names = {index: f"lock-shard-{index}-of-{SHARDS}" for index in range(SHARDS)}
        found = {index: specs.get(name, {}).get("holderIdentity", "") for index, name in names.items()}
        return {index: holder for index, holder in found.items() if holder in living}

    async def wait_for_shares(self, *shares: int) -> None:
        """Wait until all shards are held, by replicas that hold so many."""

        async def look() -> list[int]:
            holders = list((await self.holders()).values())
            return sorted(holders.count(holder) for holder in set(holders))

        await eventually(look, lambda seen: seen == sorted(shares), TIMEOUT_SECONDS, f"shares are {shares}")

    async def make_things(self) -> None:
        """Create the objects and wait until each is reconciled."""
        for name in NAMES:
            await self.world.create(MANIFEST.replace("NAME", name))
        await self.wait_until_reconciled(1)

    async def change_things(self, size: int) -> None:
        """Change every object."""
        for name in NAMES:
            await self.world.patch(THING, name, {"spec": {"size": size}})

    async def wait_until_reconciled(self, size: int) -> None:
        """Wait until every object was reconciled at a size, none of them twice at the same time."""

        async def late() -> list[str]:
            things = await self.world.objects(THING)
            done = {thing["metadata"]["name"] for thing in things if _is_done(thing) and thing["spec"]["size"] == size}
            return [
                name
                for name in NAMES
                if name not in done or not any(run.endswith(f" {size}") for run in self.runs(name))
            ]

        await eventually(late, lambda seen: seen == [], TIMEOUT_SECONDS, f"all are reconciled at size {size}")
        assert self.overlaps() == ""


def _is_held(spec: dict[str, Any]) -> bool:
    return bool(spec.get("holderIdentity"))


def _is_done(thing: dict[str, Any]) -> bool:
    observed = (thing.get("status") or {}).get("observedGeneration")
    return is_true(thing, "Successful") and observed == generation_of(thing)


@pytest.fixture
def replicas(defined: ControlPlane, world: World, tmp_path: Path) -> Iterator[Replicas]:
    """Yield replicas that aren't started yet."""
    made = Replicas(tmp_path, defined.kubeconfig, world)
    yield made
    for replica in made.all:
        replica.stop()


async def test_replicas_share_the_objects_and_take_over_those_of_a_dead_one(replicas: Replicas) -> None:
    """A new member gets its quota, each object belongs to the holder of its shard, and a dead replica is replaced."""
    flag = f"--shards={SHARDS}"
    first = replicas.start(flag)
    await replicas.wait_for_shares(SHARDS)
    second = replicas.start(flag)
    await replicas.wait_for_shares(2, 2)
    await replicas.make_things()
    shares = replicas.workers()
    assert all(len(workers) == 1 for workers in shares.values()), shares
    assert set.union(*shares.values()) == {"replica-0", "replica-1"}

    replicas.start(flag)
    await replicas.change_things(2)
    await replicas.wait_for_shares(1, 1, 2)
    await replicas.wait_until_reconciled(2)

    await replicas.change_things(3)
    await asyncio.to_thread(first.kill)
    await replicas.wait_until_reconciled(3)
    await replicas.wait_for_shares(2, 2)

    assert await asyncio.to_thread(second.stop) == 0
    await replicas.change_things(4)
    await replicas.wait_until_reconciled(4)
    await replicas.wait_for_shares(SHARDS)


def _shard(name: str, namespace: str) -> int:
    return shard_of(THING.group, THING.kind, ObjectKey(namespace, name), SHARDS)


async def test_leader_and_groups_of_other_shard_counts_never_work_at_the_same_time(replicas: Replicas) -> None:
    """Each waits until the last replica before it has ended, and logs the holder; so upgrades and rollbacks roll."""
    leader = replicas.start()
    await replicas.make_things()
    pair = [replicas.start(f"--shards={SHARDS}") for _ in range(2)]
    waiting = "Waiting for a replica with a different shard configuration"
    await eventually(
        partial(_reasons, pair[0], waiting), lambda seen: "--shards" in str(seen), TIMEOUT_SECONDS, "it says so"
    )
    await replicas.change_things(2)
    await replicas.wait_until_reconciled(2)
    assert {run.split()[0] for name in NAMES for run in replicas.runs(name)} == {"replica-0"}

    assert await asyncio.to_thread(leader.stop) == 0
    await replicas.wait_for_shares(2, 2)
    other = replicas.start("--shards=3")
    back = replicas.start()
    await eventually(
        partial(_reasons, other, waiting), lambda seen: "shards/4" in str(seen), TIMEOUT_SECONDS, "it says so"
    )
    await replicas.change_things(3)
    await replicas.wait_until_reconciled(3)
    assert [each.messages("Workers started") for each in (other, back)] == [[], []]

    assert await asyncio.to_thread(other.stop) == 0
    assert [await asyncio.to_thread(each.stop) for each in pair] == [0, 0]
    await replicas.change_things(4)
    await replicas.wait_until_reconciled(4)
    assert back.is_ready()


async def _reasons(operator: Operator, message: str) -> list[dict[str, Any]]:
    return operator.messages(message)


async def test_long_run_is_stopped_before_the_handoff_of_its_shard(replicas: Replicas) -> None:
    """The next holder reconciles its object, and the former one keeps no files of a deleted object."""
    flags = (f"--shards={SHARDS}", "--graceful-shutdown-timeout=2s")
    first = replicas.start(*flags)
    await replicas.wait_for_shares(SHARDS)
    await replicas.make_things()
    tasks = first.directory / "roles" / "thing" / "tasks" / "main.yml"
    tasks.write_text(tasks.read_text().replace("sleep 0.3", "sleep 600"))
    await replicas.change_things(2)
    second = replicas.start(*flags)
    await replicas.wait_for_shares(2, 2)

    async def seconds_share() -> set[str]:
        return {name for name in NAMES if any(run.startswith("replica-1") for run in replicas.runs(name))}

    async def workspaces() -> list[set[str]]:
        directories = [replica.directory / "work" for replica in replicas.all]
        return [{key.name for key in workspaces_of(directory, THING)} for directory in directories]

    holders = await replicas.holders()
    identity = second.messages("Sharing the work")[-1]["identity"]
    expected = {name for name in NAMES if holders[_shard(name, replicas.world.namespace)] == identity}
    assert expected
    await eventually(
        seconds_share, lambda seen: seen == expected, TIMEOUT_SECONDS, "the next holder reconciles its share"
    )
    assert replicas.overlaps() == ""

    assert (await workspaces())[0] >= expected
    for name in expected:
        await replicas.world.delete(THING, name)
    await eventually(
        workspaces, lambda seen: not seen[0] & expected, TIMEOUT_SECONDS, "the former holder keeps nothing of it"
    )
    await asyncio.to_thread(first.stop)


async def test_permissions_of_the_variant_suffice_and_missing_ones_are_logged_once(
    defined: ControlPlane, world: World, tmp_path: Path
) -> None:
    """Without permissions a replica waits until it gets them; the Leases of a dead one are removed."""
    await world.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: replica}}")
    kubeconfig = await asyncio.to_thread(defined.service_account_kubeconfig, world.namespace, "replica")
    subject = {"kind": "ServiceAccount", "name": "replica", "namespace": world.namespace}
    things = {"apiGroups": [THING.group, ""], "resources": ["*"], "verbs": ["*"]}
    await world.client.create(_role("things", things, world))
    await world.client.create(_binding("things", subject, world))
    replicas = Replicas(tmp_path, kubeconfig, world)
    try:
        first = replicas.start(f"--shards={SHARDS}")
        await eventually(partial(_refusals, first), bool, TIMEOUT_SECONDS, "it says so")
        (role,) = [each for each in documents("deploy/components/shards/rbac.yaml") if each["kind"] == "Role"]
        await world.client.create(_role("shards", role["rules"][0], world))
        await world.client.create(_binding("shards", subject, world))
        await replicas.wait_for_shares(SHARDS)
        assert len(await _refusals(first)) == 1
        second = replicas.start(f"--shards={SHARDS}")
        await replicas.make_things()
        await replicas.wait_for_shares(2, 2)
        await asyncio.to_thread(second.kill)
        await replicas.wait_for_shares(SHARDS)
        await eventually(partial(_members, world), lambda seen: len(seen) == 1, TIMEOUT_SECONDS, "one member is left")
        assert first.messages("Reconcile failed") == []
        assert len(await _refusals(first)) == 1
    finally:
        for replica in replicas.all:
            replica.stop()


async def _refusals(operator: Operator) -> list[dict[str, Any]]:
    """Return the log lines about missing permissions; a slow API server is logged with the same message."""
    return [line for line in operator.messages("Failed to read or write the Lease") if "forbidden" in line["error"]]


def _role(name: str, rule: dict[str, Any], world: World) -> dict[str, Any]:
    metadata = {"name": name, "namespace": world.namespace}
    return {"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": [rule]}


def _binding(name: str, subject: dict[str, Any], world: World) -> dict[str, Any]:
    metadata = {"name": name, "namespace": world.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": reference,
        "subjects": [subject],
    }


async def _members(world: World) -> list[str]:
    return [name for name in names(await world.objects(LEASE)) if "-member-" in name]
