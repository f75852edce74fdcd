"""Runs of a simulation: a role is a coroutine that sends its requests through the operator's real proxy.

The role makes what its object requests, as one with a few tasks of kubernetes.core would: it reads an object, and
writes it only if it differs. A request with another status fails the run. ``needs`` states what a spec
requests; the history compares this with the cluster.

``SimulatedRunner`` keeps the guarantees of every ``Runner``: a run that is cancelled, or takes too long, loses its
credentials first.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from rolecall.kube.client import MERGE_PATCH
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.reconcile.context import is_paused
from rolecall.runner.runs.outcome import Counts, Outcome, TaskFailure
from rolecall.runner.runs.process import OnEvent, RunSpec
from rolecall.runner.runs.run import SECRET_VARIABLE
from rolecall.runner.runs.variables import object_variable
from tests.simulation.network import RUN_HEADER, Content

if TYPE_CHECKING:
    from tests.simulation.replica import Replica

NAMESPACE: Final = "ns"
CONFIG_MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
FINALIZER: Final = "simulation.rolecall.dev/farewell"
SETTINGS: Final = "settings"
"""The ConfigMap that roles read and copy from."""

GATE: Final = "gate"
"""The ConfigMap without which a spec with ``needsGate`` fails."""

TOO_LATE: Final = "too-late"
"""A ConfigMap that only a process writes that has outlived its run."""

_SURVIVORS, _SURVIVE_SECONDS = 0.1, (1.0, 5.0)
_TASK_SECONDS: Final = (0.01, 0.3)
_HASTE: Final = 0.3
"""How often a task creates an object without having read it; prune keeps what was there before."""
_REQUEUE_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 20
"""How long a role that prunes keeps what a spec no longer requests."""
_HANG_SECONDS: Final = 10_000.0


_PRUNE: Final = {"options": {"after": f"{PRUNE_SECONDS}s", "kinds": [], "mode": "delete", "skips": []}}
"""The result of the task rolecall.util.prune."""


class RunError(Exception):
    """A task failed."""


@dataclass(slots=True)
class RunFact:
    """What is known about one run; ``ended`` is None as long as it runs."""

    replica: str
    uid: str
    name: str
    generation: int
    version: int
    """The resourceVersion of its object."""

    finalizing: bool
    labels: dict[str, str]
    is_paused: bool
    started: float
    ended: float | None = None
    status: str = ""


class StubRequest:
    """What the proxy uses of a request."""

    transport = None

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a request
        self, secret: str, method: str, path: str, body: RawObject | None, content_type: str, sender: str = "1"
    ) -> None:
        self.method, self.raw_path = method, path
        data = b"" if body is None else json.dumps(body).encode()
        headers = CIMultiDict({"Authorization": f"Bearer {secret}", "Accept": "application/json", RUN_HEADER: sender})
        if body is not None:
            headers.update({"Content-Type": content_type, "Content-Length": str(len(data))})
        self.headers = CIMultiDictProxy(headers)
        self.content_length, self.body_exists = len(data), body is not None
        self.content = Content(lambda: _once(data))


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


class Play:
    """The requests of one run, with time between them; counts what it does."""

    def __init__(
        self, proxy: Proxy, secret: str, variables: dict[str, Any], draw: Callable[[float, float], float]
    ) -> None:
        self._proxy, self._secret, self._draw = proxy, secret, draw
        self.variables = variables
        self.name: str = variables["ansible_operator_meta"]["name"]
        self.sender = "1"
        """The value of ``RUN_HEADER``."""
        self.tasks = self.changed = 0
        self.requeue_seconds: float | None = None

    async def ask(
        self, method: str, path: str, body: RawObject | None = None, content_type: str = "application/json"
    ) -> tuple[int, RawObject]:
        """Send a request; return the status and the object in the response."""
        await asyncio.sleep(self._draw(*_TASK_SECONDS))
        request = StubRequest(self._secret, method, path, body, content_type, self.sender)
        response = await self._proxy._handle(cast("web.BaseRequest", request))
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        try:
            return response.status, json.loads(response.body)
        except ValueError:
            return response.status, {}

    async def find(self, name: str) -> dict[str, str] | None:
        """Return the data of a ConfigMap; None if it doesn't exist."""
        self.tasks += 1
        status, found = await self.ask("GET", f"{CONFIG_MAPS}/{name}")
        if status == 404:
            return None
        if status != 200:
            raise RunError(f"GET {name}: {status}")
        return found.get("data") or {}

    async def ensure(self, name: str, data: dict[str, str], annotations: dict[str, str] | None = None) -> None:
        """Create a ConfigMap, or change its data, unless it is as requested; sometimes without looking first."""
        status, found = 409, None
        is_hasty = not self.variables.get("prunes") and self._draw(0, 1) < _HASTE
        if is_hasty or (found := await self.find(name)) is None:
            metadata = {"name": name, "namespace": NAMESPACE} | ({"annotations": annotations} if annotations else {})
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            status, _ = await self.ask("POST", CONFIG_MAPS, body)
            if status == 409:
                found = await self.find(name)
        if found is not None:
            if all(found.get(key) == value for key, value in data.items()):
                return
            status, _ = await self.ask("PATCH", f"{CONFIG_MAPS}/{name}", {"data": data}, MERGE_PATCH)
        self.changed += 1
        if status not in (200, 201):
            raise RunError(f"write {name}: {status}")

    async def rehearse_deletion(self, name: str, options: str) -> None:
        """Delete a ConfigMap without effect; the option for this is in the query or the body."""
        self.tasks += 1
        path, body = f"{CONFIG_MAPS}/{name}", None
        if options == "query":
            path += "?dryRun=All"
        else:
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
        status, _ = await self.ask("DELETE", path, body)
        if status not in (200, 404):  # somebody may have deleted it
            raise RunError(f"rehearse the deletion of {name}: {status}")


class SimulatedRunner:
    """Runs the role of ``role`` for each spec; ``facts`` has all runs in the order of their starts."""

    def __init__(self, replica: "Replica", facts: list[RunFact]) -> None:
        self._replica, self._facts = replica, facts
        self.proxy: Proxy | None = None
        self._survivors: list[asyncio.Task[None]] = []

    async def run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:  # noqa: ARG002 - of the protocol
        """Run the role; see ``Runner``."""
        loop = asyncio.get_running_loop()
        variables = json.loads((spec.workspace.path / "env" / "extravars").read_text())
        obj = variables[object_variable(spec.workspace.gvk)]
        metadata, finalizing = obj["metadata"], variables.get("state") == "absent"
        version = int(metadata["resourceVersion"])
        fact = RunFact(
            self._replica.name,
            metadata["uid"],
            metadata["name"],
            metadata.get("generation", 0),
            version,
            finalizing,
            metadata.get("labels") or {},
            is_paused(obj),
            loop.time(),
        )
        self._facts.append(fact)
        assert self.proxy is not None
        secret, draw = spec.environment.secrets[SECRET_VARIABLE], self._replica.chance.uniform
        play = self._new_play(self.proxy, secret, variables, draw, fact, spec)
        self._replica.tell(f"run of {fact.name} starts, generation {fact.generation}, version {version}")
        try:
            async with asyncio.timeout(spec.timeout_seconds):
                outcome = await self._play(play)
        except TimeoutError:
            await self._revoke(spec)
            outcome = Outcome.of_failure("the run took too long", "timeout")
        except asyncio.CancelledError:
            fact.status = "canceled"
            await self._revoke(spec)
            raise
        finally:
            fact.ended = loop.time()
            self._replica.tell(f"run of {fact.name} ends")
            if self._replica.chance.random() < _SURVIVORS:
                self._survivors.append(asyncio.create_task(self._survive(play)))
        fact.status = outcome.status
        return outcome

    def _new_play(  # noqa: PLR0913, PLR0917 - what a run is made of
        self,
        proxy: Proxy,
        secret: str,
        variables: dict[str, Any],
        draw: Callable[[float, float], float],
        fact: RunFact,  # noqa: ARG002 - for other roles
        spec: RunSpec,  # noqa: ARG002
    ) -> Play:
        return Play(proxy, secret, variables, draw)

    async def _play(self, play: Any) -> Outcome:
        try:
            await (say_farewell(play) if play.variables.get("state") == "absent" else role(play))
        except RunError as error:
            return Outcome("failed", rc=2, failures=(TaskFailure("Make it", "localhost", str(error)),))
        return Outcome(
            "successful",
            rc=0,
            counts=Counts(ok=play.tasks, changed=play.changed),
            completion="2026-01-01T00:00:00.000000",
            stats={"size": play.variables.get("size")},
            requeue_after_seconds=play.requeue_seconds,
            prune=_PRUNE if play.variables.get("prunes") else None,
        )

    async def _survive(self, play: Play) -> None:
        """Write as a process of the run that nobody could kill."""
        await asyncio.sleep(self._replica.chance.uniform(*_SURVIVE_SECONDS))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TOO_LATE, "namespace": NAMESPACE}}
        await play.ask("POST", CONFIG_MAPS, body)

    @staticmethod
    async def _revoke(spec: RunSpec) -> None:
        if spec.environment.revoke is not None:
            await spec.environment.revoke()


async def role(play: Play) -> None:
    """Make what a Thing requests."""
    spec = play.variables
    if spec.get("hangs"):
        await asyncio.sleep(_HANG_SECONDS)
    if spec.get("needs_gate") and await play.find(GATE) is None:
        raise RunError("the gate is closed")
    if spec.get("seconds"):
        await asyncio.sleep(spec["seconds"])
    data = {"size": str(spec.get("size"))}
    if spec.get("copies"):
        settings = await play.find(SETTINGS) or {}
        data["copied"] = settings.get("value", "")
    await play.ensure(play.name, data)
    for part in spec.get("parts") or ():
        await play.ensure(f"{play.name}-{part}", {"part": part})
    if options := spec.get("rehearses"):
        await play.rehearse_deletion(play.name, options)
    if counts := spec.get("counts"):
        counted = int((await play.find(f"{play.name}-count") or {}).get("count", "0"))
        count = min(counted + 1, counts)
        if counted != count:
            await play.ensure(f"{play.name}-count", {"count": str(count)})
        if count < counts:
            play.requeue_seconds = _REQUEUE_SECONDS


async def say_farewell(play: Play) -> None:
    """Write what outlives a deleted Thing."""
    uid = play.variables[next(name for name in play.variables if name.endswith("_thing"))]["metadata"]["uid"]
    await play.ensure(f"{play.name}-farewell", {uid: "done"}, {"rolecall.dev/adopt": "false"})


def needs(name: str, spec: RawObject, settings: str) -> dict[str, dict[str, str]]:
    """Return the ConfigMaps that a Thing with this spec must have, with the data that must be in them."""
    data = {"size": str(spec["size"])} | ({"copied": settings} if spec.get("copies") else {})
    found = {name: data} | {f"{name}-{part}": {"part": part} for part in spec.get("parts") or ()}
    return found | ({f"{name}-count": {"count": str(spec["counts"])}} if spec.get("counts") else {})
