"""Random histories of objects whose role prunes, while the API server responds wrongly and the operator is killed.

``python -m tests.chaos.prune_histories`` runs two hundred of them. The witness is the audit log of the API server.

- In a history with an even seed, parts of a spec are switched on and off. No part that the spec has is ever deleted.
  Afterward, a change from S0 to S1 leaves the objects of a new object with S1, and a change back those of S0.
- In one with an odd seed, the spec stays the same, and the role names some parts only while another object exists.
  The operator deletes nothing at all.

The exit code is 0 without findings, 1 with findings, and 2 for invalid arguments.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import metadata_of, owner_references_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION
from rolecall.runner.prune.inventory import NAMED, Inventory
from rolecall.runner.reconcile.context import RECONCILE_REQUESTED_AT_ANNOTATION
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.chaos.campaign import progress
from tests.chaos.histories import seeds_of
from tests.chaos.relay import Respond
from tests.chaos.replica import ACCOUNT, Replica, kept_running
from tests.chaos.requests import accepted
from tests.chaos.response_faults import ResponseFaults
from tests.chaos.scene import define
from tests.integration.operators import Operator
from tests.support.audit import AuditLog, Deletion, audited
from tests.support.things import DEFINITIONS, KINDS, write_role
from tests.support.world import CONFIG_MAP, World, eventually

PRIMARY = KINDS[0]
_FLAGS = ("--backoff-max", "2s", "--ansible-log-events", "nothing")
_PARTS = tuple("abcdefgh")
_FEWEST = 5
"""With fewer parts, a change could make most of an inventory obsolete, which needs a person."""

_WATCHES = f"""
- group: {PRIMARY.group}
  version: v1
  kind: {PRIMARY.kind}
  role: thing
"""
_TASKS = """
- name: Look for the gate
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: "{{ ansible_operator_meta.name }}-gate"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: gate

- name: Make the parts
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-{{ item }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data: {parts: "{{ parts | sort | join(' ') }}"}
  loop: "{{ parts }}"
  when: item not in gated | default([]) or gate.resources | length > 0

- name: Delete what is no longer needed
  rolecall.util.prune:
    after: 1s
    mode: delete
"""
_GRACE_SECONDS = 0.5
"""A request that was checked against the spec just before a change is in flight."""


@dataclass(slots=True)
class PruneHistory:
    """One history; ``wanted`` has the parts of the spec from a time on."""

    seed: int
    world: World
    replica: Replica
    faults: ResponseFaults
    timeout_seconds: float
    name: str
    wanted: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    async def run(self) -> list[str]:
        """Run the history, and return what remained after it."""
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        parts = frozenset(chance.sample(_PARTS, 6))
        gated = [] if self.seed % 2 == 0 else chance.sample(sorted(parts), 3)
        await self._create_gate()
        await self._create(parts, gated)
        for _ in range(chance.randint(8, 14)):
            parts = await self._step(chance, parts)
            await asyncio.sleep(chance.uniform(0.0, 1.5))
        self.faults.clear()
        await self._create_gate()
        await self._request_run()
        await self._has_inventory(parts)
        return [] if self.seed % 2 else await self._switched(chance, parts)

    async def _switched(self, chance: random.Random, first: frozenset[str]) -> list[str]:
        """Change the spec from S0 to S1 and back; the objects must be those of a fresh S1, and those of S0 again."""
        second = first - {chance.choice(sorted(first))}
        if added := sorted(set(_PARTS) - first):
            second |= {chance.choice(added)}
        found = []
        for part in (await self._objects()).keys() - first:  # made for a spec that changed before its second run
            with suppress(NotFoundError):
                await self.world.delete(CONFIG_MAP, f"{self.name}-{part}")
        await self._becomes(first)
        before = await self._objects()
        await self._want(second)
        await self._becomes(second)
        fresh = replace(self, name=f"f{self.seed}", wanted=[], steps=[])
        await fresh._create_gate()
        await fresh._create(second, [])
        if (after := await self._objects()) != (expected := await fresh._objects()):
            found.append(f"objects after S0 to S1: {after}; of a new object with S1: {expected}")
        await accepted(lambda: self.world.delete(PRIMARY, fresh.name))
        await self._want(first)
        await self._becomes(first)
        if (after := await self._objects()) != before:
            found.append(f"objects after S0 to S1 to S0: {after}; before: {before}")
        return found

    async def _becomes(self, parts: frozenset[str]) -> None:
        """Wait until exactly these parts exist, each in the state of this spec, and the inventory has them."""
        expected = dict.fromkeys(sorted(parts), " ".join(sorted(parts)))

        async def look() -> dict[str, str]:
            return {part: obj["data"]["parts"] for part, obj in (await self._objects()).items()}

        await eventually(look, expected.__eq__, self.timeout_seconds, f"the parts of {self.name}")
        await self._has_inventory(parts)

    async def _objects(self) -> dict[str, dict[str, Any]]:
        """Return the data, labels, annotations, and owners of each part, without what differs between objects."""
        found = {}
        for obj in await self.world.objects(CONFIG_MAP):
            owner, _, part = metadata_of(obj)["name"].rpartition("-")
            if owner == self.name and part in _PARTS:
                annotations = dict(metadata_of(obj).get("annotations") or {})
                annotations.pop(MADE_FOR_ANNOTATION, None)
                metadata = {"labels": metadata_of(obj).get("labels"), "annotations": annotations}
                owners = [(each.kind, each.name == self.name) for each in owner_references_of(obj)]
                found[part] = {"data": obj.get("data"), "owners": owners, **metadata}
        return found

    async def run_with_kill(self, write: int) -> bool:
        """Switch two of six parts off, and kill the operator after its write of this number.

        Return whether it wrote so often.
        """
        parts = frozenset("abcdef")
        await self._create(parts, [])
        writes = 0

        async def kill(request: web.Request) -> web.StreamResponse:
            response = await self.replica.relay.exchange(request)
            self.replica.may_end = True
            self.replica.itself.kill()
            return response

        def choose(request: web.Request) -> Respond | None:
            nonlocal writes
            is_event = request.path.endswith("/events") or "/events/" in request.path
            writes += request.method != "GET" and not is_event
            return kill if writes == write and request.method != "GET" and not is_event else None

        self.replica.relay.choose = choose
        await self._want(parts - {"a", "b"})
        for part in "ab":
            await self.world.wait_until_gone(CONFIG_MAP, f"{self.name}-{part}", self.timeout_seconds)
        await self._has_inventory(parts - {"a", "b"})
        return writes >= write

    async def _step(self, chance: random.Random, parts: frozenset[str]) -> frozenset[str]:
        """Do something, and return the parts that the spec has then."""
        actions = ["fault", "fault", "kill", "reconcile", "gate" if self.seed % 2 else "change"]
        match chance.choice([*actions, actions[-1], actions[-1]]):
            case "fault":
                self.steps.append(self.faults.draw(chance))
            case "kill":
                self.steps.append("kill")
                self.replica.kill()
            case "reconcile":
                self.steps.append("reconcile")
                await self._request_run()
            case "gate":
                self.steps.append("gate")
                if await self.world.find(CONFIG_MAP, f"{self.name}-gate"):
                    await accepted(lambda: self.world.delete(CONFIG_MAP, f"{self.name}-gate"))
                else:
                    await self._create_gate()
            case _:
                changed = parts ^ frozenset(chance.sample(_PARTS, chance.randint(1, 2)))
                if len(changed) >= _FEWEST:
                    self.steps.append(f"change to {''.join(sorted(changed))}")
                    await self._want(changed)
                    return changed
        return parts

    async def _create(self, parts: frozenset[str], gated: list[str]) -> None:
        """Create the object, and wait until its inventory has the parts."""
        spec = {"parts": sorted(parts), "gated": gated}
        obj = {"apiVersion": PRIMARY.api_version, "kind": PRIMARY.kind, "spec": spec}
        await self.world.client.create({**obj, "metadata": {"name": self.name, "namespace": self.world.namespace}})
        self.wanted.append((time.time(), parts))
        await self._has_inventory(parts)

    async def _want(self, parts: frozenset[str]) -> None:
        await self._patch({"spec": {"parts": sorted(parts)}})
        self.wanted.append((time.time(), parts))

    async def _request_run(self) -> None:
        await self._patch({"metadata": {"annotations": {RECONCILE_REQUESTED_AT_ANNOTATION: str(time.time())}}})

    async def _patch(self, patch: dict[str, Any]) -> None:
        await accepted(lambda: self.world.patch(PRIMARY, self.name, patch))

    async def _create_gate(self) -> None:
        if not await self.world.find(CONFIG_MAP, f"{self.name}-gate"):
            await self.world.create(f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {self.name}-gate}}}}")

    async def _has_inventory(self, parts: frozenset[str]) -> None:
        """Wait until the inventory has these parts, and none of them waits for its deletion."""

        async def look() -> set[str]:
            found = Inventory.of(await self.world.get(PRIMARY, self.name))
            return {each.id.name.rpartition("-")[2] for each in found.objects if each.since == NAMED}

        what = f"the inventory of {self.name} has {sorted(parts)}"
        await eventually(look, parts.__eq__, self.timeout_seconds, what)

    def wrong_deletions(self, deletions: Sequence[Deletion]) -> list[str]:
        """Return the deletions of parts that the spec had at that time; with an odd seed, all."""
        found = []
        for when, name in ((each.at, each.name) for each in deletions):
            owner, _, part = name.rpartition("-")
            effective = [parts for since, parts in self.wanted if since <= when - _GRACE_SECONDS][-1:]
            effective += [parts for since, parts in self.wanted if when - _GRACE_SECONDS < since <= when]
            if not name or (owner == self.name and (self.seed % 2 or all(part in parts for parts in effective))):
                found.append(
                    f"{name or 'a collection'} was deleted, although the spec had it; steps: {'; '.join(self.steps)}"
                )
        return found


@dataclass(frozen=True, slots=True)
class PruneHistories:
    """Runs histories on a control plane with an audit log."""

    world: World
    replica: Replica
    faults: ResponseFaults
    audit_log: AuditLog
    timeout_seconds: float

    async def findings(self, seed: int) -> list[str]:
        """Run a history; return what it found."""
        history = self._history(seed)
        try:
            found = await history.run()
        except AssertionError as error:
            found = [f"{error}; steps: {'; '.join(history.steps)}; faults met: {'; '.join(self.faults.met)}"]
        found += history.wrong_deletions(self.audit_log.deletions_of(ACCOUNT))
        with suppress(NotFoundError):
            await self.world.delete(PRIMARY, history.name)
        return found

    def _history(self, seed: int) -> PruneHistory:
        return PruneHistory(seed, self.world, self.replica, self.faults, self.timeout_seconds, f"p{seed}")

    async def findings_of_kills(self) -> tuple[int, list[str]]:
        """Kill the operator after each of its writes in turn, while parts are switched off.

        Return the number of kills, and what differs from the end state without one.
        """
        found: list[str] = []
        number = 0
        while not found:
            even = 1000 + 2 * number  # parts may be deleted
            history = self._history(even)
            try:
                was_killed = await history.run_with_kill(number + 1)
            except AssertionError as error:
                return number, [f"killed after write {number + 1}: {error}"]
            found += history.wrong_deletions(self.audit_log.deletions_of(ACCOUNT))
            await self.world.delete(PRIMARY, history.name)
            await self.world.wait_until_gone(CONFIG_MAP, f"{history.name}-c", self.timeout_seconds)
            if not was_killed:
                break
            number += 1
        return number, found


@asynccontextmanager
async def prune_histories(directory: Path, timeout_seconds: float) -> AsyncIterator[PruneHistories]:
    """Yield an operator behind a relay, on a control plane with an audit log."""
    plane = ControlPlane("prune-histories", state_directory=directory / "control-planes", report=progress)
    with audited(directory, "delete", "deletecollection") as log:
        await asyncio.to_thread(plane.start)
    try:
        await asyncio.to_thread(define, plane)
        await asyncio.to_thread(Applier(plane.kubeconfig).apply, DEFINITIONS)
        (directory / "watches.yaml").write_text(_WATCHES)
        write_role(directory, _TASKS)
        async with await Client.connect(str(plane.kubeconfig)) as client:
            world = World(client, "prune-histories")
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
            operator = Operator(directory, directory / "kubeconfig", world.namespace, _FLAGS)
            async with kept_running(operator, plane) as replica:
                faults = ResponseFaults(replica.relay)
                yield PruneHistories(world, replica, faults, log, timeout_seconds)
            await client.delete(GVK("", "v1", "Namespace"), ObjectKey("", world.namespace))
    finally:
        await asyncio.to_thread(plane.stop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the histories of some seeds, print a line for each finding, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.prune_histories", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=seeds_of, metavar="FIRST-LAST", help="seeds (default: 1-200)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for each wait (default: 120)")
    options = parser.parse_args(arguments)
    seeds = [seed for each in options.seeds or [range(1, 201)] for seed in each]
    found = asyncio.run(_run_all(seeds, Path(tempfile.mkdtemp(prefix="rolecall-prune-")), options.timeout))
    sys.stdout.write(f"{len(seeds)} histories, {len(found)} with findings: {', '.join(map(str, found)) or 'none'}\n")
    return 1 if found else 0


async def _run_all(seeds: Sequence[int], directory: Path, timeout_seconds: float) -> list[int]:
    found = []
    async with prune_histories(directory, timeout_seconds) as histories:
        for seed in seeds:
            started = time.monotonic()
            findings = await histories.findings(seed)
            progress(f"Seed {seed}: {'findings' if findings else 'none'} after {time.monotonic() - started:.1f} s")
            sys.stdout.write("".join(f"seed {seed}: {text}\n" for text in findings))
            sys.stdout.flush()
            found += [seed] if findings else []
        kills, findings = await histories.findings_of_kills()
        progress(f"Killed after each of {kills} writes: {'findings' if findings else 'none'}")
        sys.stdout.write("".join(f"{text}\n" for text in findings))
        found += [0] if findings else []
    return found


if __name__ == "__main__":
    sys.exit(main())
