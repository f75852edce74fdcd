"""The operator, the API server with an audit log, and the faults of the stories in ``prune_keeps.py``."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.election.elector import LEASE
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.chaos.campaign import progress
from tests.chaos.keeping_roles import KEEPS
from tests.chaos.relay import Respond, rejection
from tests.chaos.replica import ACCOUNT, Replica, kept_running
from tests.chaos.requests import accepted
from tests.chaos.scene import define
from tests.integration.operators import Operator
from tests.support.audit import AuditLog, Deletion, audited
from tests.support.things import THING, definition_of, write_role
from tests.support.world import CONFIG_MAP, World, eventually

STATUSES = (403, 404, 409, 415, 422, 429, 503)
_OPERATOR = "aiohttp"
"""Part of the user agent of the operator; runs send their own."""

_LEASE = "prune-keeps"
_FLAGS = (
    *("--backoff-max", "2s", "--ansible-log-events", "nothing"),
    *("--leader-elect", "--leader-election-id", _LEASE),
    *("--leader-elect-lease-duration", "12s", "--leader-elect-renew-deadline", "8s"),
)


def kind_of(name: str) -> GVK:
    """Return the kind of the objects of a class."""
    return GVK(THING.group, THING.version, f"Keep{name}")


@dataclass(slots=True)
class Runs:
    """Reads from the log of the operator which runs have started and ended."""

    log: Path
    started: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: set[tuple[str, str]] = field(default_factory=set)
    changed: dict[tuple[str, str], float] = field(default_factory=dict)
    _position: int = 0

    def read(self) -> None:
        """Read the lines that are new."""
        with self.log.open("rb") as file:
            file.seek(self._position)
            *lines, rest = file.read().split(b"\n")
            self._position = file.tell() - len(rest)
        for line in lines:
            if b'"Workers started"' in line:
                self.running.clear()
            if b'"Reconcile ' not in line or not line.startswith(b"{"):
                continue
            entry = json.loads(line)
            run = entry.get("kind", ""), entry.get("name", "")
            self.changed[run] = time.monotonic()
            if entry["msg"] == "Reconcile started":
                self.started[run] += 1
                self.running.add(run)
            elif entry["msg"] in ("Reconcile succeeded", "Reconcile failed", "Reconcile interrupted"):
                self.ended[run] += 1
                self.running.discard(run)

    def of_class(self, name: str) -> int:
        """Return how many runs of a class have started."""
        return sum(count for (kind, _), count in self.started.items() if kind == kind_of(name).kind)


@dataclass(slots=True)
class Faults:
    """Responds to single requests with errors, and stops the operator after single writes."""

    stage: "Stage"
    waiting: list[tuple[Callable[[web.Request], bool], Respond]] = field(default_factory=list)

    def choose(self, request: web.Request) -> Respond | None:
        """Return what responds instead of the API server."""
        if request.query.get("watch") in ("true", "1"):
            return None
        for each in self.waiting:
            matches, respond = each
            if matches(request):
                self.waiting.remove(each)
                return respond
        return None

    def status(self, chance: random.Random) -> str:
        """Let a random request of a run get an error."""
        code, number = chance.choice(STATUSES), chance.randint(0, 12)

        async def respond(_request: web.Request) -> web.StreamResponse:
            return rejection(code)

        self.waiting.append((_nth(number, lambda request: not _is_of_operator(request)), respond))
        return f"{code} for the {number}th request of a run"

    def stop(self, chance: random.Random) -> str:
        """Kill the operator, or take its Lease, after a random one of its writes or of its runs'."""
        number, kills = chance.randint(0, 12), chance.random() < 0.5

        async def respond(request: web.Request) -> web.StreamResponse:
            found = await self.stage.replica.relay.exchange(request)
            self.stage.replica.may_end = True
            if kills:
                self.stage.replica.kill()
            else:
                await self.stage.take_lease()
            return found

        is_write = _nth(number, lambda request: request.method != "GET" and "/leases/" not in request.path)
        self.waiting.append((is_write, respond))
        return f"{'kill the operator' if kills else 'take its Lease'} after the {number}th write"


def _nth(number: int, matches: Callable[[web.Request], bool]) -> Callable[[web.Request], bool]:
    left = iter(range(number, -1, -1))
    return lambda request: matches(request) and next(left, 0) == 0


def _is_of_operator(request: web.Request) -> bool:
    return _OPERATOR in request.headers.get("User-Agent", "")


@dataclass(slots=True)
class Stage:
    """The operator and the API server that all stories share."""

    world: World
    replica: Replica
    audit_log: AuditLog
    administrator: Path
    gates: Path
    runs: Runs
    timeout_seconds: float
    may_stop: bool = True
    """Whether a fault may stop the operator, which takes a while."""

    faults: Faults = field(init=False)
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Respond instead of the relay."""
        self.faults = Faults(self)
        self.replica.relay.choose = self.faults.choose

    def deletions(self) -> list[Deletion]:
        """Return what the operator itself has deleted, as the audit log has it."""
        return self.audit_log.deletions_of(ACCOUNT, _OPERATOR)

    async def until(self, look: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        await eventually(look, bool, self.timeout_seconds, what)

    async def make(self, name: str) -> None:
        """Create a ConfigMap that no role has made, unless it exists."""
        if not await self.world.find(CONFIG_MAP, name):
            await self.world.create(f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}")

    async def set_ready(self, name: str, *, is_ready: bool) -> None:
        """Let an object of another controller report whether it is ready."""
        if not await self.world.find(THING, name):
            await self.world.create(f"{{apiVersion: {THING.api_version}, kind: Thing, metadata: {{name: {name}}}}}")
        condition = {"type": "Ready", "status": str(is_ready), "reason": "Told"}
        await accepted(lambda: self.world.patch(THING, name, {"status": {"conditions": [condition]}}, "status"))

    async def set_phase(self, name: str, phase: str) -> None:
        """Let an object of another controller report its phase."""
        if not await self.world.find(THING, name):
            await self.world.create(f"{{apiVersion: {THING.api_version}, kind: Thing, metadata: {{name: {name}}}}}")
        await accepted(lambda: self.world.patch(THING, name, {"status": {"phase": phase}}, "status"))

    def release(self, name: str, tasks: str) -> None:
        """Change the role of a class."""
        write_role(self.gates.parent, tasks, name)

    async def take_lease(self) -> None:
        """Take the Lease of the operator, which ends, and becomes the leader again when it has expired."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = {"spec": {"holderIdentity": "another", "renewTime": now, "acquireTime": now}}
        await accepted(lambda: self.world.patch(LEASE, _LEASE, taken))

    @asynccontextmanager
    async def tags(self) -> AsyncIterator[None]:
        """Let runs have only the tasks with a tag in the meantime; this restarts the operator twice."""
        async with self._restarting:
            self.replica.operator.environment["ANSIBLE_RUN_TAGS"] = "prune"
            self.replica.kill()
            yield
            del self.replica.operator.environment["ANSIBLE_RUN_TAGS"]
            self.replica.kill()


@asynccontextmanager
async def stage_of(directory: Path, timeout_seconds: float) -> AsyncIterator[Stage]:
    """Yield the operator, behind a relay, on a control plane with an audit log."""
    plane = ControlPlane("prune-keeps", state_directory=directory / "control-planes", nodes=1, report=progress)
    with audited(directory, "delete", "deletecollection") as log:
        await asyncio.to_thread(plane.start)
    try:
        await asyncio.to_thread(define, plane)
        definitions = [definition_of(THING), *(definition_of(kind_of(name)) for name in KEEPS)]
        await asyncio.to_thread(Applier(plane.kubeconfig).apply, definitions)
        _write_project(directory, plane.kubeconfig)
        async with await Client.connect(str(plane.kubeconfig)) as client:
            world = World(client, "prune-keeps")
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
            flags = (*_FLAGS, "--leader-election-namespace", world.namespace)
            operator = Operator(directory, directory / "kubeconfig", world.namespace, flags)
            async with kept_running(operator, plane) as replica:
                runs = Runs(operator.log_file)
                yield Stage(world, replica, log, plane.kubeconfig, directory / "gates", runs, timeout_seconds)
            await client.delete(GVK("", "v1", "Namespace"), ObjectKey("", world.namespace))
    finally:
        await asyncio.to_thread(plane.stop)


def _write_project(directory: Path, administrator: Path) -> None:
    """Write a role for each class, and the chart."""
    (directory / "gates").mkdir()
    templates = directory / "chart" / "templates"
    templates.mkdir(parents=True)
    (directory / "chart" / "Chart.yaml").write_text(
        json.dumps({"apiVersion": "v2", "name": "chart", "version": "1.0.0"})
    )
    part = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}
    (templates / "part.yaml").write_text(json.dumps({**part, "data": {"size": "{{ .Values.size }}"}}))
    watches = []
    for name, keeps in KEEPS.items():
        role = write_role(directory, keeps.tasks, name)
        if keeps.handlers:
            (role / "handlers").mkdir()
            (role / "handlers" / "main.yml").write_text(keeps.handlers)
        content = f"role: {name}"
        if keeps.playbook:
            (directory / f"{name}.yml").write_text(keeps.playbook)
            content = f"playbook: {name}.yml"
        gvk = kind_of(name)
        variables = {"gates": str(directory / "gates"), "charts": str(directory / "chart")}
        variables["administrator"] = str(administrator)
        kind = f"group: {gvk.group}, version: {gvk.version}, kind: {gvk.kind}"
        watches.append(f"- {{{kind}, {content}, vars: {json.dumps(variables)}}}\n")
    (directory / "watches.yaml").write_text("".join(watches))
