"""Objects with several owners: no write of a run removes an owner that its body doesn't mention, and nothing loops.

PUT repeats all owner references of the existing object, and the two annotations that name a primary in another
namespace. Server-side apply repeats the references that its field manager owns. A body that names only the run's own
primary is joined with the others. A run adds its own reference when it creates the object, if the reference is already
there, or to adopt the object; an adoption replaces the annotations only if the primary that they name is gone.

So every pairing of these writes must behave in the same way, whether one operator runs both roles, two operators with
disjoint selectors, or two shards: all owners stay, a user's change is repaired, runs end, the garbage collector deletes
the object with its last owner, and a deleted object comes back. Runs that write different contents undo each other's
changes, so they back off, and an Event names the object and the writer.
"""

import asyncio
import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    annotation_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.election.elector import LEASE
from rolecall.runner.election.membership import shard_of
from rolecall.runner.proxy.ownership import ADOPT_ANNOTATION
from rolecall.runner.reconcile.context import RECONCILE_REQUESTED_AT_ANNOTATION
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import NAMESPACE, wait_until_ready
from tests.integration.operators import Operator
from tests.integration.shared import Role, Shared
from tests.support.world import CONFIG_MAP, EVENT, TIMEOUT_SECONDS, World, eventually, is_true, names

pytestmark = pytest.mark.alone

WRITES = """
- name: Merge
  kubernetes.core.k8s: {definition: "{{ wanted }}"}
  when: write == "merge"
- name: Apply as kubectl does
  kubernetes.core.k8s: {definition: "{{ wanted }}", apply: true}
  when: write == "client apply"
- name: Apply under a name that all primaries share
  kubernetes.core.k8s:
    definition: "{{ wanted }}"
    apply: true
    server_side_apply: {field_manager: roles, force_conflicts: true}
  when: write == "apply"
- name: Apply under the primary's name
  kubernetes.core.k8s:
    definition: "{{ wanted }}"
    apply: true
    server_side_apply: {field_manager: "{{ ansible_operator_meta.name }}", force_conflicts: true}
  when: write == "own apply"
- name: Replace
  kubernetes.core.k8s: {definition: "{{ wanted }}", force: true}
  when: write == "PUT"
"""
CLEANS_UP = """
- name: Record who cleans up
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        generateName: "{{ ansible_operator_meta.name }}-"
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: {rolecall.dev/adopt: "false"}
        labels: {by: "{{ operator }}", of: "{{ ansible_operator_meta.name }}"}
  when: state is defined
"""
SELECTOR = "selector: {matchLabels: {team: TEAM}}"
WATCH = "snakeCaseParameters: false"
FINALIZER = "vars: {operator: TEAM}\nfinalizer: {name: test.rolecall.dev/cleanup, vars: {state: absent}}"

TEAMS = ("a", "b")
SHARDS = len(TEAMS)
SERVER_SIDE = ("merge", "apply", "own apply", "PUT")
SAME = [(write, write) for write in SERVER_SIDE]
MIXED = [("merge", "PUT"), ("PUT", "apply"), ("own apply", "merge")]
ARGUMENTS = ("--reconcile-period=1h", "--backoff-max=20s", "--max-concurrent-reconciles=4")

ELECTION = "shared-objects"

MAX_ROUNDS = 6
"""Of a run of each primary, until such a round changes nothing."""


def project(team: str, *, has_selector: bool) -> Shared:
    """Return the project of a team's operator; two kinds share objects, and a third has a finalizer."""
    selector = f"\n{SELECTOR.replace('TEAM', team)}" if has_selector else ""
    sharing = Role(WRITES, WATCH + selector)
    cleaning = Role(CLEANS_UP, FINALIZER.replace("TEAM", team) + selector)
    return Shared({"sharing": sharing, "sharing-too": sharing, "cleaning": cleaning}, ARGUMENTS)


@dataclass(slots=True)
class Runs:
    """The runs of all operators, read from the new lines of their logs."""

    operators: list[Operator]
    causes: dict[ObjectKey, list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    """The causes of each run, by the primary."""
    ended: dict[ObjectKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The error of each run that has ended, empty if it succeeded."""
    _read: dict[Path, int] = field(default_factory=dict)

    def update(self) -> None:
        """Read the new lines."""
        for operator in self.operators:
            start = self._read.get(operator.log_file, 0)
            with operator.log_file.open("rb") as log:
                log.seek(start)
                lines, newline, _ = log.read().rpartition(b"\n")
            self._read[operator.log_file] = start + len(lines + newline)
            for line in lines.splitlines():
                if b'"Reconcile ' in line:
                    self._add(json.loads(line))

    def _add(self, entry: dict[str, Any]) -> None:
        key = ObjectKey(entry["namespace"], entry["name"])
        if entry["msg"] == "Reconcile started":
            self.causes[key].append(entry["causes"])
        else:
            self.ended[key].append(entry.get("error", ""))


@dataclass(frozen=True, slots=True)
class Setup:
    """Operators that work at the same time, and their projects."""

    name: str
    operators: list[Operator]
    shared: Shared
    runs: Runs

    def primary(self, world: World, role: str, name: str, number: int) -> "Primary":
        """Return the first or the second primary of a pair; they are in different teams and in different shards."""
        gvk = self.shared.gvk(role)
        for suffix in count():
            key = world.key(f"{name}-{TEAMS[number]}{suffix}")
            if shard_of(gvk.group, gvk.kind, key, SHARDS) == number:
                break
        return Primary(self.runs, world, gvk, key, TEAMS[number])


@dataclass(frozen=True, slots=True)
class Primary:
    """One of two objects whose runs write the same object."""

    runs: Runs
    world: World
    gvk: GVK
    key: ObjectKey
    team: str

    def __str__(self) -> str:
        """Return the kind and the name."""
        return f"{self.gvk.kind} {self.key.name}"

    async def create(self, spec: dict[str, Any]) -> None:
        """Create it."""
        metadata = {"name": self.key.name, "namespace": self.key.namespace, "labels": {"team": self.team}}
        manifest = {"apiVersion": self.gvk.api_version, "kind": self.gvk.kind, "metadata": metadata, "spec": spec}
        await self.world.client.create(manifest)

    async def succeeds(self) -> None:
        """Wait until its run has succeeded."""
        await self.world.wait_for(self.gvk, self.key.name, lambda obj: is_true(obj, "Successful"), TIMEOUT_SECONDS)

    async def goes(self) -> None:
        """Delete it, and wait until it is gone."""
        await self.world.delete(self.gvk, self.key.name)
        await self.world.wait_until_gone(self.gvk, self.key.name, TIMEOUT_SECONDS)

    async def runs_once_more(self) -> None:
        """Request a run when none is active, and wait until it has ended."""
        before = await self._until(lambda started, ended: started == ended, "no run is active")
        patch = {"metadata": {"annotations": {RECONCILE_REQUESTED_AT_ANNOTATION: uuid.uuid4().hex}}}
        await self.world.patch(self.gvk, self.key.name, patch)
        await self._until(lambda _, ended: ended > before, "the requested run has ended")

    async def _until(self, holds: Callable[[int, int], bool], what: str) -> int:
        async def look() -> tuple[int, int]:
            self.runs.update()
            return len(self.runs.causes[self.key]), len(self.runs.ended[self.key])

        return (await eventually(look, lambda seen: holds(*seen), TIMEOUT_SECONDS, f"{self}: {what}"))[1]

    def started_by(self, text: str) -> int:
        """Count its runs with such a cause."""
        self.runs.update()
        return sum(any(text in cause for cause in causes) for causes in self.runs.causes[self.key])

    def errors(self) -> list[str]:
        """Return the errors of its failed runs."""
        self.runs.update()
        return [error for error in self.runs.ended[self.key] if error]


@dataclass(frozen=True, slots=True)
class Case:
    """Two primaries whose runs write a ConfigMap in a place, the namespace of the primaries or another one."""

    setup: Setup
    world: World
    place: World
    writes: tuple[str, str]
    adopts: bool

    @property
    def name(self) -> str:
        """The name of the ConfigMap; it tells the writes."""
        return "-then-".join(write.replace(" ", "-").lower() for write in self.writes)

    @property
    def is_near(self) -> bool:
        """Whether owner references are possible."""
        return self.world.namespace == self.place.namespace

    @property
    def primaries(self) -> tuple[Primary, Primary]:
        """The primaries; with different writes, they have different kinds, because they have different roles."""
        roles = ("sharing", "sharing" if len(set(self.writes)) == 1 else "sharing-too")
        first, second = (self.setup.primary(self.world, role, self.name, number) for number, role in enumerate(roles))
        return first, second

    @property
    def cause(self) -> str:
        """The start of a cause that names the ConfigMap."""
        return f"ConfigMap {self.place.namespace}/{self.name}"

    def spec(self, number: int, value: str = "yes") -> dict[str, Any]:
        """Return the spec of a primary."""
        metadata: dict[str, Any] = {"name": self.name, "namespace": self.place.namespace}
        if self.adopts:
            metadata["annotations"] = {ADOPT_ANNOTATION: "true"}
        wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"wanted": value}}
        return {"write": self.writes[number], "wanted": wanted}

    async def find(self) -> RawObject:
        """Return the ConfigMap, empty if there is none."""
        return await self.place.find(CONFIG_MAP, self.name) or {}

    async def until(self, holds: Callable[[RawObject], object], what: str) -> RawObject:
        """Wait until something holds for the ConfigMap."""
        return await eventually(self.find, holds, TIMEOUT_SECONDS, f"{what}; owners: {owners(await self.find())}")

    async def is_quiet(self) -> None:
        """Check that soon a run of each primary changes nothing, and that until then changes have triggered no run."""
        seen = []
        for _ in range(MAX_ROUNDS):
            before = [resource_version_of(await self.find()), *self._triggered()]
            for primary in self.primaries:
                await primary.runs_once_more()
            seen.append([resource_version_of(await self.find()), *self._triggered()])
            if seen[-1] == before:
                return
        raise AssertionError(f"not quiet; version of the ConfigMap, runs of each triggered by it: {seen}")

    def _triggered(self) -> list[int]:
        return [primary.started_by(self.cause) for primary in self.primaries]

    async def is_repaired_by(self, *those: Primary) -> None:
        """Change the ConfigMap as a user, and wait until these primaries have run because of it and it is repaired."""
        before = [primary.started_by(self.cause) for primary in those]
        await self.place.patch(CONFIG_MAP, self.name, {"data": {"wanted": "changed"}})
        await self.until(lambda obj: (obj.get("data") or {}).get("wanted") == "yes", "a user's change is repaired")

        async def look() -> list[bool]:
            return [primary.started_by(self.cause) > runs for primary, runs in zip(those, before, strict=True)]

        await eventually(look, all, TIMEOUT_SECONDS, f"a user's change triggers {', '.join(map(str, those))}")

    async def check(self) -> None:
        """Let both primaries live, and check everything that the rule promises."""
        first, second = self.primaries
        await first.create(self.spec(0))
        await first.succeeds()
        self.expect_owners(await self.find(), first)
        await second.create(self.spec(1))
        await second.succeeds()
        both = self.adopts and self.is_near
        expected = [first, second] if both else [first]
        self.expect_owners(await self.find(), *expected)
        await self.is_quiet()
        self.expect_owners(await self.find(), *expected)
        await self.is_repaired_by(*expected)
        await self.is_quiet()
        self.expect_owners(await self.find(), *expected)

        old = uid_of(await self.find())
        await self.place.delete(CONFIG_MAP, self.name)
        await self.until(lambda obj: uid_of(obj) not in {"", old}, "an owner creates it again")
        await self.is_quiet()
        self.expect_owners(await self.find(), *expected)
        await (self.goes_with_its_last_owner() if self.is_near else self.stays_without_its_owner())
        assert first.errors() == second.errors() == []

    def expect_owners(self, obj: RawObject, *expected: Primary) -> None:
        """Check whom the ConfigMap names."""
        assert owners(obj) == sorted(map(str, expected)), "these owners were expected"

    async def goes_with_its_last_owner(self) -> None:
        """Delete one primary after the other; in between, the ConfigMap has the other owner."""
        first, second = self.primaries
        old = uid_of(await self.find())
        await first.goes()
        if self.adopts:
            left = await self.until(lambda obj: owners(obj) == [str(second)], "the other owner is left")
            assert uid_of(left) == old
            await self.is_repaired_by(second)
        else:
            await self.until(lambda obj: uid_of(obj) != old, "it goes with its owner")
            await second.runs_once_more()
            self.expect_owners(await self.find(), second)
        await second.goes()
        await self.until(lambda obj: not obj, "it goes with its last owner")

    async def stays_without_its_owner(self) -> None:
        """Delete the primary that the annotations name: with an adoption, they name the other one from then on."""
        first, second = self.primaries
        old = uid_of(await self.find())
        refusals = [line for operator in self.setup.operators for line in operator.lines() if self.is_refusal(line)]
        assert len(refusals) == self.adopts, "an adoption that the annotations prevent is logged once"
        await first.goes()
        await second.runs_once_more()
        self.expect_owners(await self.find(), second if self.adopts else first)
        if self.adopts:
            await self.is_repaired_by(second)
        await second.goes()
        assert uid_of(await self.find()) == old

    def is_refusal(self, line: dict[str, Any]) -> bool:
        """Return whether a line of a log reports that the ConfigMap isn't adopted."""
        return line.get("dependent") == self.cause and str(line["msg"]).startswith("Not adopting")

    async def backs_off(self) -> None:
        """Let both primaries want different contents, until an Event about one names the ConfigMap and the writer.

        An operator knows the writes of its own runs only.
        """
        first, second = self.primaries
        await first.create(self.spec(0, "this"))
        await first.succeeds()
        await second.create(self.spec(1, "that"))
        expected = {one.key.name: f"{other.gvk.kind} {other.key}" for one, other in ((first, second), (second, first))}
        if self.setup.name != "one operator":
            expected = dict.fromkeys(expected, "another client")

        async def told() -> list[tuple[str, str]]:
            found = [event for event in await self.world.objects(EVENT) if event["reason"] == "ReconcileDelayed"]
            return [(event["involvedObject"]["name"], event["message"]) for event in found]

        def names_both(events: list[tuple[str, str]]) -> bool:
            return any(self.cause in text and expected.get(name, "-") in text for name, text in events)

        await eventually(told, names_both, TIMEOUT_SECONDS, "an Event names both")
        self.expect_owners(await self.find(), first, second)
        for primary in (first, second):
            await primary.goes()


def owners(obj: RawObject) -> list[str]:
    """Return whom an object names as its primary, by owner references or annotations."""
    found = [f"{owner.kind} {owner.name}" for owner in owner_references_of(obj)]
    if kind := annotation_of(obj, PRIMARY_TYPE_ANNOTATION):
        found.append(f"{kind.partition('.')[0]} {(annotation_of(obj, PRIMARY_ANNOTATION) or '').rpartition('/')[2]}")
    return sorted(found)


async def all_hold(checks: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run checks concurrently and report all that fail, by their names."""
    results = await asyncio.gather(*checks.values(), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, AssertionError):
            raise result
    failures = [f"{name}: {result}" for name, result in zip(checks, results, strict=True) if result]
    assert not failures, "\n\n".join(failures)


@pytest.fixture(scope="module", params=["one operator", "two operators", "two shards"])
def started(
    request: pytest.FixtureRequest, defined: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    """Yield a setup, whose operators are started but perhaps not ready; they serve the tests of this file."""
    name: str = request.param
    projects = [project(team, has_selector=name == "two operators") for team in TEAMS]
    if name == "one operator":
        projects = projects[:1]
    elif name == "two shards":
        election = ("--leader-elect", f"--leader-election-id={ELECTION}", "--leader-election-namespace=default")
        projects = [replace(projects[0], arguments=(*ARGUMENTS, *election, f"--shards={SHARDS}"))] * SHARDS
    operators = [each.operator(tmp_path_factory.mktemp("shared"), defined.kubeconfig) for each in projects]
    for operator in operators:
        operator.start()
    yield Setup(name, operators, projects[0], Runs(operators))
    assert [operator.stop() for operator in operators] == [0] * len(operators)


@pytest.fixture
async def setup(started: Setup, world: World) -> AsyncIterator[Setup]:
    """Yield a setup once its operators work, each on a shard if there are shards; its objects go with the test."""
    for operator in started.operators:
        await wait_until_ready(operator)
    if started.name == "two shards":
        await wait_for_shards(World(world.client, "default"))
    yield started
    for gvk in map(started.shared.gvk, started.shared.roles):
        for name in names(await world.objects(gvk)):
            with contextlib.suppress(NotFoundError):
                await world.delete(gvk, name)
                await world.patch(gvk, name, {"metadata": {"finalizers": None}})


async def wait_for_shards(world: World) -> None:
    """Wait until each replica holds a shard."""

    async def holders() -> set[str]:
        found = await asyncio.gather(
            *(world.find(LEASE, f"{ELECTION}-shard-{index}-of-{SHARDS}") for index in range(SHARDS))
        )
        return {str(lease["spec"].get("holderIdentity")) for lease in found if lease}

    await eventually(holders, lambda found: len(found - {"None", ""}) == SHARDS, TIMEOUT_SECONDS, "each holds a shard")


@pytest.fixture
async def elsewhere(world: World) -> AsyncIterator[World]:
    """Yield another namespace."""
    name = f"{world.namespace}-2"
    await world.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield World(world.client, name)
    await world.client.delete(NAMESPACE, ObjectKey("", name))


@pytest.mark.parametrize("adopts", [False, True], ids=["created", "adopted"])
@pytest.mark.parametrize("place", ["near", "far"])
async def test_writes_of_two_primaries_keep_each_others_owners(
    setup: Setup, world: World, elsewhere: World, place: str, *, adopts: bool
) -> None:
    # An apply like kubectl's sends nothing if the object has all that it wants, so it can't adopt the object then.
    pairs = [*SAME, *(MIXED if adopts else [("client apply", "client apply")])]
    cases = [Case(setup, world, world if place == "near" else elsewhere, pair, adopts) for pair in pairs]
    await all_hold({case.name: case.check() for case in cases})


async def test_runs_that_write_different_contents_back_off_and_an_event_names_both(setup: Setup, world: World) -> None:
    cases = [Case(setup, world, world, pair, adopts=True) for pair in SAME]
    await all_hold({case.name: case.backs_off() for case in cases})


async def test_each_primary_is_cleaned_up_once_and_by_its_own_operator(setup: Setup, world: World) -> None:
    """Both have the same finalizer's name."""
    both = [setup.primary(world, "cleaning", "cleaned", number) for number in range(len(TEAMS))]
    for primary in both:
        await primary.create({})
        await primary.succeeds()
    await asyncio.gather(*(primary.goes() for primary in both))
    labels = [obj["metadata"].get("labels") or {} for obj in await world.objects(CONFIG_MAP)]
    records = sorted((each["of"], each["by"]) for each in labels if "of" in each)
    has_teams = setup.name == "two operators"
    assert records == [(primary.key.name, primary.team if has_teams else TEAMS[0]) for primary in both]
    assert [primary.errors() for primary in both] == [[], []]
