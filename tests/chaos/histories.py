"""Random histories: users change objects while the API server responds wrongly.

``python -m tests.chaos.histories --help`` describes the options.

A history is a seed: which objects are created, changed, and deleted, and which faults affect which requests in between.
Afterwards, without faults, the same must hold as if there had been none:

- each object and its dependent have the state of its spec, the status reports success, and deleted objects are deleted;
- nothing is forgotten: a change, a finalizer, and a period still start runs;
- no status has ever reported the success of a size that the dependent never had.

All histories of a session share one operator, as faults of earlier ones must not affect later ones. The exit code is 0
without findings, 1 with findings, and 2 for invalid arguments.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.kube.client import Client
from rolecall.kube.errors import GoneError, NotFoundError, UnreachableError
from rolecall.kube.metadata import is_being_deleted, metadata_of, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.chaos.campaign import progress
from tests.chaos.replica import Replica, kept_running
from tests.chaos.requests import accepted
from tests.chaos.response_faults import ResponseFaults
from tests.chaos.scene import define
from tests.integration.operators import Operator
from tests.support.things import DEFINITIONS, KINDS, write_role
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, condition, eventually, is_true

WATCHED, PERIODIC = KINDS[0], KINDS[1]
RECORDED = (CONFIG_MAP, WATCHED, PERIODIC)
STEPS = (6, 10)
_POLL_SECONDS = 0.2
_FLAGS = ("--backoff-max", "2s", "--ansible-log-events", "nothing")
_WATCHES = f"""
- group: {WATCHED.group}
  version: v1
  kind: {WATCHED.kind}
  role: thing
  finalizer: {{name: test.rolecall.dev/farewell, vars: {{state: absent}}}}
  status: {{size: $.stats.size}}
- group: {PERIODIC.group}
  version: v1
  kind: {PERIODIC.kind}
  role: thing
  reconcilePeriod: 2s
  watchDependentResources: false
  status: {{size: $.stats.size}}
"""
_TASKS = """
- name: Write the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "{{ size | string }}"}
  when: state | default('present') == 'present'

- name: Report the size
  ansible.builtin.set_stats: {data: {size: "{{ size | int }}"}, aggregate: false}

- name: Write a farewell that outlives the object
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-farewell"
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: {rolecall.dev/adopt: "false"}
  when: state | default('present') == 'absent'
"""


@dataclass(slots=True)
class History:
    """One history in a namespace; ``sizes`` has the last accepted size of each object, None for a deleted one."""

    seed: int
    world: World
    faults: ResponseFaults
    timeout_seconds: float
    sizes: dict[tuple[GVK, str], int | None] = field(default_factory=dict)
    recorded: "Recorded" = field(default_factory=lambda: Recorded())  # noqa: PLW0108 - defined below
    steps: list[str] = field(default_factory=list)

    async def run(self) -> list[str]:
        """Make all changes during faults, and return what differs from an undisturbed run afterwards."""
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        async with _recording(self.world, self.recorded):
            await self._change(chance)
            for _ in range(chance.randint(*STEPS)):
                if chance.random() < 0.5:
                    self.steps.append(self.faults.draw(chance))
                else:
                    await self._change(chance)
                await asyncio.sleep(chance.uniform(0.0, 0.6))
            await asyncio.sleep(chance.uniform(0.0, 2.0))  # faults also meet what follows the last change
            self.faults.clear()
            found = await self._unsettled("after the faults") or await self._forgotten()
            await self._remove()
        return found + [text for text in self.recorded.lies() if text not in found]

    async def outage(self, plane: ControlPlane, seconds: float) -> list[str]:
        """Stop the API server for some time, between changes, and return what differs afterwards."""
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        for _ in range(6):
            await self._change(chance)
        await asyncio.to_thread(plane.stop_component, "kube-apiserver")
        await asyncio.sleep(seconds)
        await asyncio.to_thread(plane.start_component, "kube-apiserver")
        await self._change(chance)
        return await self._unsettled("after the outage") or await self._forgotten()

    async def _change(self, chance: random.Random) -> None:
        """Create, change, or delete an object."""
        gvk, number = chance.choice([(WATCHED, 0), (WATCHED, 1), (PERIODIC, 0)])
        name = f"h{self.seed}-{gvk.kind.lower()}-{number}"
        size, client, key = chance.randint(1, 1000), self.world.client, self.world.key(name)
        if (gvk, name) not in self.sizes:
            obj: RawObject = {"apiVersion": gvk.api_version, "kind": gvk.kind, "spec": {"size": size}}
            obj["metadata"] = {"name": name, "namespace": self.world.namespace}
            await accepted(lambda: client.create(obj))
            self.sizes[gvk, name] = size
            self.steps.append(f"create {name} with size {size}")
        elif self.sizes[gvk, name] is None:
            self.steps.append(f"{name} stays deleted")
        elif gvk == WATCHED and chance.random() < 0.25:
            await accepted(lambda: client.delete(gvk, key))
            self.sizes[gvk, name] = None
            self.steps.append(f"delete {name}")
        else:
            await self._resize(gvk, name, size)
            self.steps.append(f"set the size of {name} to {size}")

    async def _resize(self, gvk: GVK, name: str, size: int) -> None:
        await accepted(lambda: self.world.patch(gvk, name, {"spec": {"size": size}}))
        self.sizes[gvk, name] = size

    async def _forgotten(self) -> list[str]:
        """Return the objects that a change, or the period, no longer reconciles."""
        for gvk, name in self._living():
            await self._resize(gvk, name, 2000)
        if found := await self._unsettled("after a later change"):
            return found
        for gvk, name in self._living():
            if gvk == PERIODIC:
                await accepted(lambda name=name: self.world.delete(CONFIG_MAP, name))  # type: ignore[misc]
        return await self._unsettled("after a period")

    def _living(self) -> list[tuple[GVK, str]]:
        return [each for each, size in self.sizes.items() if size is not None]

    async def _unsettled(self, when: str) -> list[str]:
        """Wait until all objects have the state of their specs; return the differences after a timeout."""
        deadline = time.monotonic() + self.timeout_seconds
        while found := await self._differences():
            if time.monotonic() > deadline:
                return [f"{when}: {text}" for text in found]
            await asyncio.sleep(_POLL_SECONDS)
        return []

    async def _differences(self) -> list[str]:
        found: list[str] = []
        for (gvk, name), size in self.sizes.items():
            obj, made = await self.world.find(gvk, name), await self.world.find(CONFIG_MAP, name)
            if size is None:
                found += [f"{name} is not deleted"] if obj else []
                if name in self.recorded.finalizing and not await self.world.find(CONFIG_MAP, f"{name}-farewell"):
                    found.append(f"the finalizer of {name} has not run")
            elif obj is None or made is None or made.get("data", {}).get("size") != str(size):
                found.append(f"{name}: size {size}, but its dependent is {made and made.get('data')}")
            else:
                found += [f"{name}: {text}" for text in _wrong_status(obj, size)]
        return found

    async def _remove(self) -> None:
        """Delete the objects that remain."""
        for gvk, name in self._living():
            with suppress(NotFoundError):
                await self.world.delete(gvk, name)


def _wrong_status(obj: RawObject, size: int) -> list[str]:
    """Return the differences of an object's status from that of a successful run with this size."""
    status = obj.get("status") or {}
    found = [] if status.get("size") == size else [f"status.size is {status.get('size')}, expected {size}"]
    found += [] if is_true(obj, "Successful") else [f"Successful is {condition(obj, 'Successful')}"]
    found += ["Failure is True"] if is_true(obj, "Failure") else []
    running = condition(obj, "Running")
    # A periodic object may be in its next run, which keeps the reason of the last result until it has one.
    return found + ([] if running.get("reason") in ("Successful", "Running") else [f"Running is {running}"])


@dataclass(slots=True)
class Recorded:
    """The states of primaries and dependents that the API server has sent, in order."""

    sizes: dict[str, set[int]] = field(default_factory=dict)
    """The sizes that each dependent has had."""
    successes: set[tuple[str, int]] = field(default_factory=set)
    """The names of objects, with the sizes whose success their status has reported."""
    finalizing: set[str] = field(default_factory=set)
    """The names of objects that were deleted after they had the finalizer; until then, a deletion needs no run."""

    versions: set[str] = field(default_factory=set)
    """The versions of all objects."""

    def lies(self) -> list[str]:
        """Return the reported successes of sizes that the dependent never had."""
        return [
            f"{name}: the status reported the success of size {size}, which its dependent never had"
            for name, size in sorted(self.successes)
            if size not in self.sizes.get(name, set())
        ]

    def add(self, obj: RawObject) -> None:
        """Record a state."""
        self.versions.add(resource_version_of(obj))
        name = str(metadata_of(obj)["name"])
        if obj["kind"] == CONFIG_MAP.kind:
            if (text := (obj.get("data") or {}).get("size", "")).isdecimal():
                self.sizes.setdefault(name, set()).add(int(text))
        elif is_being_deleted(obj):
            self.finalizing.update([name] if metadata_of(obj).get("finalizers") else [])
        elif is_true(obj, "Successful"):
            self.successes.add((name, int((obj.get("status") or {}).get("size", -1))))


@asynccontextmanager
async def _recording(world: World, recorded: Recorded) -> AsyncIterator[None]:
    """Record the states of all objects of a namespace, directly from the API server."""
    tasks = [asyncio.create_task(_record(world, gvk, recorded)) for gvk in RECORDED]
    try:
        yield
        await eventually(
            lambda: _unrecorded(world, recorded), lambda found: not found, TIMEOUT_SECONDS, "all is recorded"
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _unrecorded(world: World, recorded: Recorded) -> list[str]:
    """Return the present versions of objects that the API server hasn't sent to the recorder yet."""
    pages = [page for gvk in RECORDED async for page, _ in world.client.list_pages(gvk, world.namespace)]
    return [version for page in pages for obj in page if (version := resource_version_of(obj)) not in recorded.versions]


async def _record(world: World, gvk: GVK, recorded: Recorded) -> None:
    version = ""
    while True:
        with suppress(GoneError, UnreachableError):
            if not version:
                async for page, version in world.client.list_pages(gvk, world.namespace):  # noqa: B007
                    for obj in page:
                        recorded.add({"kind": gvk.kind, **obj})
            async for kind, obj in world.client.watch(gvk, world.namespace, version, 300.0):
                version = str(metadata_of(obj).get("resourceVersion", version))
                if kind != "BOOKMARK":
                    recorded.add(obj)


@asynccontextmanager
async def histories(plane: ControlPlane, directory: Path, timeout_seconds: float) -> AsyncIterator["Histories"]:
    """Yield an operator behind a relay, in a namespace of its own."""
    await asyncio.to_thread(define, plane)
    await asyncio.to_thread(Applier(plane.kubeconfig).apply, DEFINITIONS)
    (directory / "watches.yaml").write_text(_WATCHES)
    write_role(directory, _TASKS)
    async with await Client.connect(str(plane.kubeconfig)) as client:
        world = World(client, f"histories-{random.SystemRandom().randrange(10**8)}")
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
        operator = Operator(directory, directory / "kubeconfig", world.namespace, _FLAGS)
        async with kept_running(operator, plane) as replica:
            yield Histories(world, replica, ResponseFaults(replica.relay), timeout_seconds)
        await client.delete(GVK("", "v1", "Namespace"), ObjectKey("", world.namespace))


@dataclass(frozen=True, slots=True)
class Histories:
    """Runs one history at a time."""

    world: World
    replica: Replica
    faults: ResponseFaults
    timeout_seconds: float

    async def findings(self, seed: int) -> list[str]:
        """Run a history; return what it found, followed by its steps and the requests that met a fault."""
        history = History(seed, self.world, self.faults, self.timeout_seconds)
        self.faults.met.clear()
        found = await history.run()
        if self.replica.ended:
            found.append(f"the operator exited by itself with {self.replica.ended}")
            self.replica.ended.clear()
        if not found:
            return []
        return [*found, f"steps: {'; '.join(history.steps)}", f"faults met: {'; '.join(self.faults.met)}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the histories of some seeds, print a line for each finding, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.histories",
        description="Changes objects while the API server responds wrongly, and compares the outcome with the specs.",
    )
    parser.add_argument(
        "seeds", nargs="*", type=seeds_of, metavar="FIRST-LAST", help="a range of seeds, or one (default: 1-200)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="time in which all objects must reach their state after the faults (default: 60)",
    )
    parser.add_argument(
        "--outage",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="after the histories, stop the API server for this time (default: 0)",
    )
    options = parser.parse_args(arguments)
    seeds = [seed for each in options.seeds or [range(1, 201)] for seed in each]
    directory = Path(tempfile.mkdtemp(prefix="rolecall-histories-"))
    found = asyncio.run(_run_all(seeds, directory, options.timeout, options.outage))
    sys.stdout.write(f"{len(seeds)} histories, {len(found)} with findings: {', '.join(found) or 'none'}\n")
    progress(f"Operator log: {directory / 'operator.log'}")
    return 1 if found else 0


async def _run_all(seeds: Sequence[int], directory: Path, timeout_seconds: float, outage_seconds: float) -> list[str]:
    plane = ControlPlane("histories", state_directory=directory / "control-planes", nodes=1, report=progress)
    await asyncio.to_thread(plane.start)
    try:
        async with histories(plane, directory, timeout_seconds) as each:
            found = [str(seed) for seed in seeds if await _is_found(each, seed)]
            if outage_seconds:
                progress(f"Stopping the API server for {outage_seconds:g} s")
                history = History(seeds[-1] + 1, each.world, each.faults, timeout_seconds)
                findings = await history.outage(plane, outage_seconds)
                sys.stdout.write("".join(f"outage: {text}\n" for text in findings))
                found += ["the outage"] if findings else []
            return found
    finally:
        await asyncio.to_thread(plane.stop)


async def _is_found(each: Histories, seed: int) -> bool:
    started = time.monotonic()
    findings = await each.findings(seed)
    progress(f"Seed {seed}: {'findings' if findings else 'as without faults'} after {time.monotonic() - started:.1f} s")
    for text in findings:
        sys.stdout.write(f"seed {seed}: {text}\n")
    sys.stdout.flush()
    return bool(findings)


def seeds_of(text: str) -> range:
    """Return the seeds of a range, or of a single number."""
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"expected FIRST-LAST or one seed, found {text!r}")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
