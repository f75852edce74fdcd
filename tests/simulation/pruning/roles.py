"""Roles that state what they need, and name it in each of the ways in which a real role does.

A ``RoleModel`` has items. ``needs`` returns what a spec needs with all gates open: the oracle's view. ``PruningPlay``
is a run of the role: what it requests depends on its gates, and on the *way* in which the spec requests each item.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.client import MERGE_PATCH
from rolecall.kube.references import RawObject
from rolecall.runner.runs.events import read_event
from rolecall.runner.runs.outcome import Outcome, OutcomeBuilder
from tests.simulation.kinds import ServedKind
from tests.simulation.pruning.kinds import (
    DEPLOYMENT,
    ELSEWHERE,
    ENDPOINTS,
    MARKED,
    NEVER,
    PRUNED,
    WIDGET,
    collection,
    content,
    path_of,
)
from tests.simulation.runs import NAMESPACE, Play, RunError

APPLY_PATCH: Final = "application/apply-patch+yaml"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
PRUNE: Final = "rolecall.dev/prune"
ADOPT: Final = "rolecall.dev/adopt"
HELM: Final = "app.kubernetes.io/managed-by"

_BROKEN: Final = "k8s_broken"
_LATER_SECONDS, _LATER_RUNS = "3s", 5
_BLOCK: Final = 4
LABEL: Final = "tier"
"""The label of a primary that some items depend on."""


class Way(StrEnum):
    """How a run names an item, or why it doesn't, although the spec needs it."""

    USUAL = ""
    DRY_RUN = "dry run"
    ELSEWHERE = "other credentials"
    HANGING_JOB = "job that hangs"
    KILLED_JOB = "job that is killed"
    LISTED = "list"
    LATER = "in a later run"
    IGNORED = "after an ignored failure"
    RESCUED = "after a rescued failure"
    EARLY = "play ends early"
    SOMETIMES = "in every second run"
    SELDOM = "in four of eight runs"
    FAILING = "in runs that fail"


UNPREDICTABLE: Final = (Way.SOMETIMES, Way.SELDOM, Way.FAILING)
"""Ways in which only another run names an item; until one has, nothing shows that it is needed."""


class Gate(StrEnum):
    """What a role waits for before it makes an item."""

    NONE = ""
    READY = "ready"
    WORKLOAD = "workload"
    ENDPOINTS = "endpoints"
    PHASE = "phase"
    AVAILABLE = "available"
    PROGRESSING = "progressing"
    OUTSIDE = "outside"


class Method(StrEnum):
    """How a role writes an item."""

    POST = "post"
    PUT = "put"
    MERGE = "apply: true"
    APPLY = "server-side apply"
    KUBECTL = "kubectl apply --server-side"


GATE_KINDS: Final = {
    Gate.READY: WIDGET,
    Gate.WORKLOAD: DEPLOYMENT,
    Gate.ENDPOINTS: ENDPOINTS,
    Gate.PHASE: WIDGET,
    Gate.AVAILABLE: WIDGET,
    Gate.PROGRESSING: WIDGET,
}


@dataclass(frozen=True, slots=True)
class Item:
    """An object that a role makes; it is always needed without an ``option``."""

    kind: ServedKind
    suffix: str
    option: str = ""
    method: Method = Method.POST
    gate: Gate = Gate.NONE
    namespace: str = NAMESPACE
    is_shared: bool = False
    """Whether the items of all primaries with this suffix are one object."""

    is_marked: bool = False
    """Whether its definition has ``rolecall.dev/prune: "true"``."""

    is_by_label: bool = False
    """Whether the role makes it only with an even number in a label of the primary; a spec never needs it."""

    extra: str = ""
    """``adopt``, ``no owner``, or ``helm``: what else its definition says."""

    def name(self, primary: str) -> str:
        """Return the name of the item of a primary."""
        return f"shared-{self.suffix}" if self.is_shared else f"{primary}-{self.suffix}"

    def path(self, primary: str) -> str:
        """Return the path of the item of a primary."""
        return path_of(self.kind, self.namespace, self.name(primary))

    def body(self, primary: str, size: Any) -> RawObject:
        """Return the definition of the item."""
        metadata: RawObject = {"name": self.name(primary)}
        if self.kind.is_namespaced:
            metadata["namespace"] = self.namespace
        annotations = {PRUNE: "true"} if self.is_marked else {}
        if self.extra in ("adopt", "no owner"):
            annotations[ADOPT] = "true" if self.extra == "adopt" else "false"
        if annotations:
            metadata["annotations"] = annotations
        if self.extra == "helm":
            metadata["labels"] = {HELM: "Helm"}
        gvk = self.kind.gvk
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **content(self.kind, size)}


@dataclass(frozen=True, slots=True)
class RoleState:
    """A release of a role with its variables: the items that it leaves out, and options that are on everywhere."""

    release: int = 1
    left_out: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()


@dataclass(slots=True)
class RoleModel:
    """A role, and its state now; ``after`` and ``mode`` are the options of its task."""

    kind: ServedKind
    items: tuple[Item, ...]
    after_seconds: int = 20
    mode: str = "delete"
    prunes: bool = True
    state: RoleState = field(default_factory=RoleState)

    def wants(self, item: Item, spec: Mapping[str, Any], state: RoleState) -> bool:
        """Return whether a spec needs an item with a state of the role."""
        if item.suffix in state.left_out:
            return False
        return not item.option or item.option in (spec.get("options") or ()) or item.option in state.options

    def needs(self, primary: str, spec: Mapping[str, Any], state: RoleState) -> dict[str, Item]:
        """Return the items that a primary needs, by their paths, with all gates open."""
        wanted = [item for item in self.items if self.wants(item, spec, state) and not item.is_by_label]
        return {item.path(primary): item for item in wanted}


def draw_palette(chance: random.Random) -> tuple[ServedKind, ...]:
    """Draw the kinds of the objects of a history: few, so that several objects have the same."""
    groups = chance.choices((PRUNED, MARKED, NEVER), (8, 3, 0.4), k=3)
    return tuple(chance.choice(group) for group in groups)


def draw_model(kind: ServedKind, palette: tuple[ServedKind, ...], chance: random.Random) -> RoleModel:
    """Draw a role for a kind of primaries."""
    items = []
    for number in range(chance.randint(3, 5)):
        made = chance.choice(palette)
        gate = chance.choice(tuple(Gate)[1:]) if chance.random() < 0.3 else Gate.NONE
        namespace = ELSEWHERE if chance.random() < 0.15 else NAMESPACE
        items.append(
            Item(
                made,
                f"{'fgv'[PREFIXES.index(kind.gvk.kind)]}{number}",
                option="" if number == 0 else f"o{chance.randint(1, 3)}",
                method=chance.choice(tuple(Method)),
                gate=gate,
                namespace=namespace,
                is_marked=(made in MARKED and chance.random() < 0.85) or (made in NEVER and chance.random() < 0.5),
                is_by_label=chance.random() < 0.08,
                extra=chance.choice(("adopt", "no owner", "helm")) if chance.random() < 0.06 else "",
            )
        )
    if chance.random() < 0.4:
        items.append(
            Item(
                palette[0],
                "s",
                option="o1",
                method=chance.choice(tuple(Method)),
                is_shared=True,
                is_marked=palette[0] in MARKED,
            )
        )
    mode = "report" if chance.random() < 0.12 else "delete"
    return RoleModel(kind, tuple(items), chance.choice((5, 5, 20, 40)), mode)


PREFIXES: Final = ("Thing", "Fleet", "Visitor")


@dataclass(slots=True)
class PruningFact:
    """What is known about one run; ``named`` are the paths that it has requested by name."""

    replica: str
    uid: str
    primary: str
    kind: str
    spec: RawObject
    state: RoleState
    number: int
    """How many runs of the primary there were before."""

    started: float
    ended: float | None = None
    wall_ended: float = 0.0
    """The wall clock of its operator at its end."""

    named: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)
    reached: bool = False
    """Whether the run has reached the task."""

    requeues: bool = False
    status: str = ""
    is_lost: bool = False
    """Whether its operator was killed before it could act on it."""

    @property
    def is_complete(self) -> bool:
        """Whether the run is one that may prune something."""
        return self.status == "successful" and self.reached and not self.doubts


class PruningPlay(Play):
    """One run of a role; ``history`` has the gates, the models, and the truth."""

    def __init__(self, play: Play, history: Any, fact: PruningFact, model: RoleModel) -> None:
        super().__init__(play._proxy, play._secret, play.variables, play._draw)
        self.history, self.fact, self.model = history, fact, model
        self.sender = fact.uid
        self.builder = OutcomeBuilder()
        self.is_even = False
        """Whether the label of the primary has an even number."""

        self.has_ended = False
        """Whether the run has ended by itself."""

        self._jobs = 0

    async def ask(
        self, method: str, path: str, body: RawObject | None = None, content_type: str = "application/json"
    ) -> tuple[int, RawObject]:
        """Send a request; note what it names."""
        bare = path.partition("?")[0]
        if method != "POST":  # whatever the response, also if there is none
            self.fact.named.add(bare)
        status, found = await super().ask(method, path, body, content_type)
        if method == "POST" and body is not None and status < 300:
            self.fact.named.add(f"{bare}/{body['metadata']['name']}")
        if "items" in found:
            self.fact.named |= {f"{bare}/{each['metadata']['name']}" for each in found["items"]}
        elif status < 300 and "dryRun" not in path:
            self.history.truth.requested(self.fact, found)
        if method == "GET" and status == 200:
            self.history.user.interfere(bare)
        return status, found

    async def run(self) -> None:
        """Run the role. Raise RunError if a task fails."""
        spec, ways = self.fact.spec, self.fact.spec.get("ways") or {}
        for each in spec.get("uses") or ():
            self.tasks += 1
            await self.ask("GET", each)
        is_early = False
        for item in self.model.items:
            if not self.model.wants(item, spec, self.fact.state) or not await self._is_open(item.gate):
                continue
            if item.is_by_label and not self.is_even:
                continue
            way = Way(ways.get(item.suffix, ""))
            is_early |= way == Way.EARLY
            await self._make(item, way)
        if spec.get("fails") and self.fact.number % 2:
            raise RunError("a task fails in every second run")
        if self.model.prunes and not is_early:
            self.fact.reached = True
            options = {"after": f"{self.model.after_seconds}s", "mode": self.model.mode, "kinds": [], "skips": []}
            self._report("runner_on_ok", "rolecall.util.prune", {"prune": options})

    async def _make(self, item: Item, way: Way) -> None:
        self.tasks += 1
        is_odd = bool(self.fact.number % 2)
        if way == Way.USUAL or (way == Way.SOMETIMES and is_odd) or (way == Way.SELDOM and self._is_in_block()):
            await self._write(item)
        elif way == Way.FAILING and is_odd:
            await self._write(item)
            raise RunError("this run fails")
        elif way == Way.DRY_RUN:
            await self._rehearse(item)
        elif way == Way.LISTED:
            await self._list(item)
        elif way == Way.LATER:
            await self._make_later(item)
        elif way == Way.ELSEWHERE:
            self._write_with_other_credentials(item)
        else:
            self._leave_out(way)

    def _is_in_block(self) -> bool:
        return bool(self.fact.number // _BLOCK % 2)

    def _leave_out(self, way: Way) -> None:
        """Leave out an item, with the events of what has prevented it."""
        if way in (Way.HANGING_JOB, Way.KILLED_JOB):
            self._report_job(ended=False)
        if way == Way.KILLED_JOB:
            self.builder.doubt("the end of the run killed background jobs")
        if way in (Way.IGNORED, Way.RESCUED):
            self.fact.doubts.append(way)
            failed = {"msg": "simulated", "failed": True}
            self._report("runner_on_failed", _BROKEN, failed, ignored=way == Way.IGNORED)

    async def _is_open(self, gate: Gate) -> bool:
        """Return whether a role does what it does only behind a gate."""
        if gate == Gate.NONE:
            return True
        if gate == Gate.OUTSIDE:
            return bool(self.history.is_outside_open)
        self.tasks += 1
        status, found = await self.ask("GET", gate_path(gate))
        if status not in (200, 404):
            raise RunError(f"GET {gate}: {status}")
        return status == 200 and is_gate_open(gate, found)

    async def _write(self, item: Item) -> None:
        """Make an item what the spec requests."""
        path, body = item.path(self.fact.primary), item.body(self.fact.primary, self.fact.spec.get("size"))
        if item.method in (Method.APPLY, Method.KUBECTL):
            manager = "kubectl" if item.method == Method.KUBECTL else "ansible"
            query = f"?fieldManager={manager}&force=true"
            self._expect(*await self.ask("PATCH", path + query, body, APPLY_PATCH))
        elif item.method == Method.PUT and item.kind.creates_on_update and not self.fact.number % 3:
            self._expect(*await self.ask("PUT", path, body))
        else:
            await self._read_and_write(item, path, _with_last_applied(body) if item.method == Method.MERGE else body)

    async def _read_and_write(self, item: Item, path: str, body: RawObject) -> None:
        status, found = await self.ask("GET", path)
        if status == 404:
            self._expect(*await self.ask("POST", path.rpartition("/")[0], body), more=(409,))
        elif status != 200:
            raise RunError(f"GET {path}: {status}")
        elif item.method == Method.MERGE:
            if patch := _three_way(found, body):
                self._expect(*await self.ask("PATCH", path, patch, MERGE_PATCH))
        elif any(found.get(name) != value for name, value in content(item.kind, self.fact.spec.get("size")).items()):
            if item.method == Method.PUT:
                body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
                self._expect(*await self.ask("PUT", path, body), more=(409,))
            else:
                self._expect(*await self.ask("PATCH", path, body, MERGE_PATCH))

    @staticmethod
    def _expect(status: int, _found: RawObject, more: Sequence[int] = ()) -> None:
        if status not in (200, 201, *more):
            raise RunError(f"write: {status}")

    async def _rehearse(self, item: Item) -> None:
        """Write an item in a dry run, as a task with ``check_mode: true``."""
        path, body = item.path(self.fact.primary), item.body(self.fact.primary, self.fact.spec.get("size"))
        if item.method == Method.POST:
            await self.ask("POST", f"{path.rpartition('/')[0]}?dryRun=All", body)
        else:
            await self.ask("PATCH", f"{path}?dryRun=All", body, MERGE_PATCH)

    def _write_with_other_credentials(self, item: Item) -> None:
        """Write an item past the proxy."""
        self.fact.doubts.append("other credentials")
        path, body = item.path(self.fact.primary), item.body(self.fact.primary, self.fact.spec.get("size"))
        server = self.history.server
        if server.handle("POST", path.rpartition("/")[0], body=body).status == 409:
            server.handle("PATCH", path, body=body, content_type=MERGE_PATCH)
        arguments = {"host": "https://api.example.com", "name": body["metadata"]["name"]}
        self._report("runner_on_ok", "kubernetes.core.k8s", {"invocation": {"module_args": arguments}})

    async def _list(self, item: Item) -> None:
        """Look for an item in a list, and make it only if it isn't there."""
        path = collection(item.kind, item.namespace)
        status, found = await self.ask("GET", path)
        if status != 200:
            raise RunError(f"list {path}: {status}")
        if not any(each["metadata"]["name"] == item.name(self.fact.primary) for each in found["items"]):
            await self._write(item)

    async def _make_later(self, item: Item) -> None:
        """Make an item after some runs for this spec, which request the next one."""
        runs = [fact for fact in self.history.truth.runs_of(self.fact.uid) if fact.spec == self.fact.spec]
        if len(runs) > _LATER_RUNS:
            return await self._write(item)
        self.fact.requeues = True
        self._report("runner_on_ok", "operator_sdk.util.requeue_after", {"period": _LATER_SECONDS})
        return None

    def _report_job(self, *, ended: bool) -> None:
        self._jobs += 1
        self.fact.doubts.append("job")
        self._report("runner_on_ok", "async_status", {"ansible_job_id": f"j{self._jobs}", "finished": int(ended)})

    def _report(self, name: str, action: str, result: RawObject, *, ignored: bool = False) -> None:
        data: RawObject = {"task": action, "task_action": action, "host": "localhost", "task_uuid": str(self.tasks)}
        data |= {"res": result, "ignore_errors": ignored}
        self.builder.add(read_event({"event": name, "event_data": data}))

    def finish(self, error: RunError | None) -> Outcome:
        """Return the outcome, as from the events of Ansible."""
        if error is not None:
            self._report("runner_on_failed", _BROKEN, {"msg": str(error), "failed": True})
        counts = {"ok": {"localhost": self.tasks}, "processed": {"localhost": 1}}
        counts |= {"failures": {"localhost": 1}} if error is not None else {}
        recap = {"event": "playbook_on_stats", "event_data": counts, "created": "2026-01-01T00:00:00.000000"}
        self.builder.add(read_event(recap))
        ending = Outcome("successful" if error is None else "failed", rc=0 if error is None else 2)
        return self.builder.finish(ending)


def gate_path(gate: Gate) -> str:
    """Return the path of the object that a gate depends on."""
    return path_of(GATE_KINDS[gate], NAMESPACE, f"gate-{gate}")


def is_gate_open(gate: Gate, obj: RawObject) -> bool:
    """Return whether an object is in the state that a role waits for."""
    status = obj.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    match gate:
        case Gate.ENDPOINTS:
            return any(each.get("addresses") for each in obj.get("subsets") or ())
        case Gate.PHASE:
            return bool(status.get("phase") == "Running")
        case Gate.PROGRESSING:
            return bool(conditions.get("Progressing") == "False")
    return bool(conditions.get("Ready" if gate == Gate.READY else "Available") == "True")


def _with_last_applied(body: RawObject) -> RawObject:
    """Return a definition as ``apply: true`` of kubernetes.core sends it."""
    metadata = body["metadata"]
    annotations = {**metadata.get("annotations", {}), LAST_APPLIED: json.dumps(body, sort_keys=True)}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _three_way(live: RawObject, wanted: RawObject) -> RawObject:
    """Return the merge patch of ``apply: true``: a null removes what was applied before, by anybody."""
    try:
        before = json.loads((live["metadata"].get("annotations") or {}).get(LAST_APPLIED, "{}"))
    except ValueError:
        before = {}
    return _merge(before, live, wanted)


def _merge(before: Any, live: Any, wanted: RawObject) -> RawObject:
    patch: RawObject = {}
    before, live = (each if isinstance(each, dict) else {} for each in (before, live))
    for name in before.keys() - wanted.keys() & live.keys():
        patch[name] = None
    for name, value in wanted.items():
        if isinstance(value, dict):
            if inner := _merge(before.get(name), live.get(name), value):
                patch[name] = inner
        elif live.get(name) != value:
            patch[name] = value
    return dict(sorted(patch.items()))
