"""The contenders: rolecall warm, rolecall cold, the same work as kopf handlers, and a peer's binary if there is one.

Each works in its own namespace and all run at the same time, so that their samples alternate: other work on the
machine affects all of them. An idle one costs almost nothing. All have two workers, the same rights and the same
directory with watches.yaml and roles.
"""

import itertools
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.observer import Observer, observing, turn_of
from bench.operator_process import RUN, Operator, clean_environment, running
from bench.stage import PROJECT, Stage, side_by_side
from bench.subjects import CONTENT, FLEET, PODS_EACH, SUBJECTS, Subject

from rolecall.kube.references import GVK, ObjectKey, RawObject

WORKERS = 2
WARM, COLD, KOPF, PEER = NAMES = ("warm", "cold", "kopf", "peer")
_FIRST_SECONDS, _PER_OBJECT_SECONDS, _QUIET_WITHIN_SECONDS = 300.0, 10.0, 60.0
_LOOK_SECONDS = 0.25
_ROLECALL = (*RUN, "--max-concurrent-reconciles", str(WORKERS))
_PEER_FLAGS = ("--metrics-bind-address=0", "--health-probe-bind-address=0", f"--max-concurrent-reconciles={WORKERS}")


@dataclass(frozen=True, slots=True)
class Contender:
    """An operator to compare: its name in the report, its command, and where it looks for programs first."""

    name: str
    command: tuple[str, ...]
    programs: Path = Path(sys.executable).parent

    @property
    def is_slow(self) -> bool:
        """Whether it starts a new interpreter for each play, so that it gets fewer objects."""
        return self.name in (COLD, PEER)


def contenders(peer: Path | None, peer_programs: Path | None = None) -> list[Contender]:
    """Return all of them in the order in which their samples alternate.

    The peer finds ansible-runner in ``peer_programs``, or where rolecall finds it.
    """
    kopf = (sys.executable, "-m", "kopf", "run", "--standalone", "--log-format", "json")
    found = [
        Contender(WARM, (*_ROLECALL, "--warm=true")),
        Contender(COLD, (*_ROLECALL, "--warm=false")),
        Contender(KOPF, (*kopf, "--module", "bench.kopf_handlers")),
    ]
    if peer is None:
        return found
    return [*found, Contender(PEER, (str(peer), "run", *_PEER_FLAGS), peer_programs or found[0].programs)]


@dataclass(slots=True)
class Ring:
    """One contender in its namespace, while it runs, with a watch on each kind."""

    contender: Contender
    stage: Stage
    namespace: str
    operator: Operator
    observers: dict[GVK, Observer]
    _revisions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def keys(self, prefix: str, count: int) -> list[ObjectKey]:
        """Return where so many objects lie."""
        return [ObjectKey(self.namespace, f"{prefix}-{number:03d}") for number in range(count)]

    async def create_content(self, subject: Subject, keys: Sequence[ObjectKey], pods: int) -> None:
        """Create objects whose pods are there before them, and wait until all is done and quiet."""
        await side_by_side(self.stage.client.create(pod) for key in keys for pod in subject.pods(key, pods))
        await self.create(subject, keys, pods)
        await self.quiet()

    async def create(self, subject: Subject, keys: Sequence[ObjectKey], pods: int) -> float:
        """Create objects that want so many pods; return the seconds until each is finished."""
        return await self._reconciled(subject, [self.stage.client.create(subject.make(key, pods)) for key in keys])

    async def change(self, subject: Subject, keys: Sequence[ObjectKey]) -> float:
        """Give each object a new generation that requests nothing new; return the seconds until each is finished."""
        revision = {"spec": {"revision": next(self._revisions)}}
        client = self.stage.client
        return await self._reconciled(subject, [client.patch(subject.gvk, key, revision) for key in keys])

    async def seconds_from_start(self, subject: Subject, obj: RawObject, within_seconds: float) -> float:
        """Wait until an object is finished; return the seconds since the start of the operator. Raises RuntimeError."""
        started = time.monotonic() - (time.time() - self.operator.started_at)
        return await self._finished(subject, [obj], within_seconds) - started

    async def quiet(self) -> None:
        """Wait until the tree does nothing."""
        await self.operator.quiet(_LOOK_SECONDS, _QUIET_WITHIN_SECONDS)

    async def _reconciled(self, subject: Subject, asked: Sequence[Awaitable[RawObject]]) -> float:
        started = time.monotonic()
        answers = await side_by_side(asked)
        return await self._finished(subject, answers, _FIRST_SECONDS + len(asked) * _PER_OBJECT_SECONDS) - started

    async def _finished(self, subject: Subject, objects: Sequence[RawObject], within_seconds: float) -> float:
        observer, turns = self.observers[subject.gvk], list(map(turn_of, objects))
        what = f"{self.contender.name}, {subject.title}: all objects are finished"
        finished: float = await self.operator.until(lambda: observer.finished_at(turns), within_seconds, what)
        return finished


async def create_satisfied(stage: Stage, subject: Subject, key: ObjectKey) -> RawObject:
    """Create an object that has its pods already, before a contender sees it."""
    for pod in subject.pods(key, PODS_EACH):
        await stage.client.create(pod)
    return await stage.client.create(subject.make(key, PODS_EACH))


@asynccontextmanager
async def ring(stage: Stage, contender: Contender, namespace: str) -> AsyncIterator[Ring]:
    """Start a contender in a namespace that exists and stop it at the end of the block."""
    async with AsyncExitStack() as stack:
        kinds = [subject.gvk for subject in (*SUBJECTS, FLEET)]
        observers = {gvk: await stack.enter_async_context(observing(stage.client, gvk, namespace)) for gvk in kinds}
        # Only kopf doesn't take the namespace from the environment.
        command = (*contender.command, *(("--namespace", namespace) if contender.name == KOPF else ()))
        environment = _environment(stage, contender, namespace)
        operator = stack.enter_context(running(command, _project(stage), environment))
        yield Ring(contender, stage, namespace, operator, observers)


@asynccontextmanager
async def rings(stage: Stage, section: str, chosen: Iterable[Contender]) -> AsyncIterator[list[Ring]]:
    """Start several contenders, each in its own namespace."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(ring(stage, each, await stage.namespace(f"{section}-{each.name}")))
            for each in chosen
        ]


def _project(stage: Stage) -> Path:
    """Return the directory with watches.yaml and roles that all contenders share: copies, not links, for the peer."""
    directory = stage.directory / "comparison"
    if not directory.is_dir():
        roles = directory / "roles"
        directory.mkdir()
        shutil.copy(CONTENT / "watches.yaml", directory)
        for role in (*(CONTENT / "roles").iterdir(), PROJECT / "roles" / "podscaler"):
            shutil.copytree(role, roles / role.name, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def _environment(stage: Stage, contender: Contender, namespace: str) -> dict[str, str]:
    common = {
        **clean_environment(Path.home(), contender.programs),
        "KUBECONFIG": str(stage.kubeconfig),
        "WATCH_NAMESPACE": namespace,
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_COLLECTIONS_PATH": str(PROJECT / "src" / "rolecall" / "collections"),
    }
    # The handlers import modules of the benchmark; what PYTHONPATH adds must not slow the others down.
    return common | {"PYTHONPATH": str(PROJECT), "WORKERS": str(WORKERS)} if contender.name == KOPF else common
