"""A history: a user, other controllers, and faults around one or several operators, all drawn from one seed.

What must hold at every moment is in ``oracles``, and what must hold when the faults have ended in ``ending``.
"""

import asyncio
import hashlib
import math
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from rolecall.kube.errors import KubeError
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.election.elector import LeadershipLostError
from tests.simulation import kinds
from tests.simulation.cluster import SimulatedApiServer
from tests.simulation.ending import LARGEST_SIZE, Ending
from tests.simulation.network import EMPHASES, Network
from tests.simulation.oracles import Oracles
from tests.simulation.replica import EPOCH, Replica, counted_tasks, current_replica, simulated_system
from tests.simulation.runs import CONFIG_MAPS, FINALIZER, NAMESPACE, RunFact
from tests.simulation.storage import Snapshot
from tests.simulation.user import NAMES, SELECTED, User
from tests.support.virtual_time import VirtualTimeLoop

_STEPS: Final = (6, 12)
_PAUSES: Final = (0.05, 0.5, 2.0, 10.0)
_CONTROLLER_SECONDS: Final = 0.4
_MOMENTS: Final = (0.003, 0.03, 0.1, 0.3)
"""How soon after a change another one follows: during the first requests of its reconcile."""

_BRIEFLY: Final = (0.02, 0.2, 1.0, 4.0)
"""How long a change lasts that the user takes back."""

_HIDDEN_SECONDS: Final = (1.0, 8.0, 20.0)
"""How long discovery fails; a run waits 2.6 s for it, and then what it reads or creates must fail."""

_RESTART_SECONDS: Final = 5.0
_FIRST_RUN_STEPS, _STEP_SECONDS = 400, 0.02
"""How often, and at which intervals, the first run of an operator is looked for."""

_SECRETS: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets"

_UNDONE: Final = 40
"""How many changes a restore undoes at least: after as many new ones, no version shows that there was one."""

_NOTICED_SECONDS: Final = 150.0
"""After this time, every watch knows the version of these changes, or of a restore, in spite of a lost connection."""

_LEASES: Final = {"leader_elect": True, "leader_election_id": "operator", "leader_election_namespace": NAMESPACE}


@dataclass(slots=True)
class Report:
    """What a history has found, and what it has cost."""

    seed: int
    findings: list[str]
    story: list[str]
    runs: int
    requests: int
    seconds: float
    faults: dict[str, int]

    @property
    def digest(self) -> str:
        """The digest of the story."""
        return hashlib.sha256("\n".join(self.story).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Options:
    """What isn't drawn from the seed; ``replicas`` 0 is drawn too."""

    fault_rate: float = 0.15
    replicas: int = 0
    often: str = ""
    """The name of a step that happens ten times as often as usual."""


class Playable(Protocol):
    """What ``play`` plays; errors of the operators are findings of its ``oracles``."""

    oracles: Any

    def tell(self, text: str) -> None:
        """Add a line to the story."""

    async def run(self) -> Report:
        """Play the history, and return what it has found."""


Make = Callable[[int, Path, Options, asyncio.AbstractEventLoop], Playable]
"""Makes the history of a seed, with its files below a path."""


def play(seed: int, root: Path, options: Options | None = None, make: Make | None = None) -> Report:
    """Play the history of a seed with files below ``root``, which is removed afterwards."""
    root.mkdir(parents=True)
    (root / "roles" / "thing" / "tasks").mkdir(parents=True)
    (root / "roles" / "thing" / "tasks" / "main.yml").write_text("[]\n")
    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    state = random.getstate()
    random.seed(seed)
    try:
        counted_tasks(loop)
        loop.set_exception_handler(lambda *_: None)  # tasks that a kill has ended
        history = (make or History)(seed, root, options or Options(), loop)
        with simulated_system(), _told(history):
            return loop.run_until_complete(history.run())
    finally:
        random.setstate(state)
        asyncio.set_event_loop(None)
        loop.close()
        shutil.rmtree(root)


@contextmanager
def _told(history: Playable) -> Iterator[None]:
    """Add the log of the operators to the story."""

    def tell(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        message, name = event.get("event"), event.get("name", "")
        details = next(filter(None, map(event.get, ("causes", "error", "reason", "reasons", "objects"))), "")
        if level in ("error", "critical") or message in _TOLD:
            history.tell(f"  {level}: {message} {name} {details}".rstrip())
            if message == "Reconcile started" and (replica := current_replica()) is not None:
                history.oracles.reconcile_started(replica, name, event["causes"])
            if message == "Continuing with an earlier version than the known one":
                history.oracles.may_be_outdated(name)
            error = sys.exc_info()[1] if event.get("exc_info") else None
            if error is not None and not isinstance(error, KubeError):  # an error of the program
                history.tell(traceback.format_exc())
                history.oracles.find(f"{message}: {error!r}")
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, tell],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


_TOLD: Final = frozenset(
    {
        "Reconcile started",
        "Reconcile succeeded",
        "Reconcile failed",
        "Object was deleted",
        "Object is paused; its role does not run",
        "Run interrupted",
        "Watch expired; listing again",
        "Became the leader",
        "Lost the Lease",
        "Workers started",
        "Exiting",
        "Nothing is pruned: the run may have left out objects",
        "Nothing is pruned: the role names or changes other objects in each run",
        "Objects are obsolete",
        "Objects are proposed for deletion",
        "Obsolete objects wait",
        "Keeping an object that roles of two objects use",
        "Ignoring an invalid entry of the inventory",
    }
)


class History:
    """The history of one seed."""

    def __init__(self, seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self.seed, self.root, self._loop = seed, root, loop
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.draw = random.Random(f"user {seed}")  # noqa: S311 - no secret
        self.story: list[str] = []
        self.is_strict = self.draw.random() < 0.2
        thing = replace(kinds.THING, schema=_strict_schema) if self.is_strict else kinds.THING
        self.server = SimulatedApiServer(lambda: EPOCH + loop.time(), (*kinds.BUILT_IN, thing))
        self.network = Network(self.server, self.chance, self.tell)
        self.facts: list[RunFact] = []
        self.user = User(self.server, self.draw, self.tell)
        self.replicas: list[Replica] = []
        self.fault_rate, self.often = options.fault_rate, options.often
        mode = self.draw.random()
        self.count = options.replicas or (1 if mode < 0.8 else 2)
        self.shards = 4 if mode >= 0.9 else 0
        self.has_finalizer = self.draw.random() < 0.6
        self.period = 20.0 if self.draw.random() < 0.2 else None
        self.has_selector = self.draw.random() < 0.4
        self.prunes = self.draw.random() < 0.3
        self.manages_status = self.draw.random() < 0.75
        self.watches = (self._watch(),)
        self.oracles = Oracles(self)
        self._emphases: list[float] = []
        """How much more often than usual each kind of step happens."""

        self._numbers = 0
        self._restored_at = -math.inf
        self._saved: tuple[float, Snapshot, Callable[[], None]] | None = None

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self._loop.time():10.3f} {text}")

    async def run(self) -> Report:
        """Play the history, and return what it has found."""
        loop = asyncio.get_running_loop()
        controllers = asyncio.create_task(self._control())
        self.user.begin()
        for _ in range(self.count):
            self._start_replica()
        self.network.fault_rate = self.fault_rate
        for _ in range(self.draw.randint(*_STEPS)):
            await asyncio.sleep(self.draw.choice(_PAUSES))
            await self._step()
        await asyncio.sleep(self.draw.uniform(0, 5))
        self._end_faults()
        findings = await Ending(self).findings()
        for replica in self.replicas:
            await replica.stop()
        controllers.cancel()
        findings += [text for text in self.oracles.findings if text not in findings]
        # Replicas, handoffs, lost responses, and restored clusters aren't second operators.
        findings += [line for line in self.story if "probably a second operator" in line]
        return Report(
            self.seed, findings, self.story, len(self.facts), self.network.requests, loop.time(), self.network.faults
        )

    async def _step(self) -> None:
        """Let the user change something, or let something happen to the cluster or an operator."""
        user = self.user
        steps = {
            user.change: 8,
            user.delete: 2,
            user.recreate: 2,
            user.set_settings: 2,
            user.delete_dependent: 3,
            user.change_dependent: 1,
            user.make_part: 1,
            user.toggle_pause: 1,
            user.toggle_label: 2,
            user.request: 1,
            user.toggle_gate: 1,
            user.remove_finalizer: 1,
            self._compact: 1,
            self._restore: 3,
            self._cut: 3,
            self._kill: 2,
            self._restart: 1,
            self._delete_what_a_new_operator_makes: 1,
            self._delete_what_is_made_unseen: 1,
            self._toggle_briefly: 2,
            self._hide_kinds: 3,
        }
        if not self._emphases:
            self._emphases = [2.0, *(self.draw.choice(EMPHASES) for _ in range(len(steps) - 1))]
        weights = [
            weight * emphasis * (10 if step.__name__ == self.often else 1)
            for (step, weight), emphasis in zip(steps.items(), self._emphases, strict=True)
        ]
        step = self.draw.choices(list(steps), weights)[0]
        if (waiting := step()) is not None:
            await waiting

    # What happens to the operators.

    def _compact(self) -> None:
        self.server.compact(self.server.version)
        self.tell("etcd is compacted")

    def _cut(self) -> None:
        """Lose all packets of a replica for some time, while everything else goes on."""
        replica = self.draw.choice(self.replicas)
        replica.session.cut()
        self.tell(f"{replica.name} is cut off")
        breaks = self.draw.random() < 0.5

        def restore() -> None:
            if breaks:  # what the watches have missed is no longer there
                self._compact()
            replica.session.restore(breaks=breaks)
            self.tell(f"{replica.name} is connected")

        self._loop.call_later(self.draw.choice((1.0, 8.0, 40.0)), restore)

    async def _restore(self) -> None:
        """Save etcd, or restore what was saved: everything that happened since is undone, versions included."""
        if self.count > 1:  # a Lease would name a holder of the past
            return
        if self._saved is None:
            await asyncio.sleep(max(0.0, self._restored_at + _NOTICED_SECONDS - self._loop.time()))
            self._saved = self._loop.time(), self.server.snapshot(), self.user.saved()
            self.tell("etcd is saved")
            for number in range(_UNDONE):  # what other clients change
                body = {"metadata": {"name": "another"}, "stringData": {"number": str(number)}}
                self.server.handle(*("PUT", f"{_SECRETS}/another") if number else ("POST", _SECRETS), body=body)
            return
        saved_at, snapshot, restore_user = self._saved
        await asyncio.sleep(max(0.0, saved_at + _NOTICED_SECONDS - self._loop.time()))
        self._saved, self._restored_at = None, self._loop.time()
        restore_user()
        self.server.restore(snapshot)
        self.oracles.restored()
        self.tell("etcd is restored")

    async def _kill(self) -> None:
        index = self.draw.randrange(len(self.replicas))
        await self.replicas[index].kill()
        await asyncio.sleep(self.draw.choice((0.1, 3.0, 20.0)))
        self._start_replica(index)

    async def _restart(self) -> None:
        index = self.draw.randrange(len(self.replicas))
        await self.replicas[index].stop()
        self._start_replica(index)

    async def _delete_what_a_new_operator_makes(self) -> None:
        """Delete a dependent right after the first run of an operator, which may not have listed its kind yet."""
        await self._kill()
        before = len(self.facts)
        for _ in range(_FIRST_RUN_STEPS):
            if made := [fact.name for fact in self.facts[before:] if fact.ended is not None]:
                self.server.handle("DELETE", f"{CONFIG_MAPS}/{made[0]}")
                self.tell(f"user deletes the ConfigMap {made[0]} after its run")
                return
            await asyncio.sleep(_STEP_SECONDS)

    async def _delete_what_is_made_unseen(self) -> None:
        """Delete a dependent as soon as a run has made it again, while every watch breaks and expires."""
        name, before = self.draw.choice(NAMES), len(self.facts)
        path = f"{CONFIG_MAPS}/{name}"
        if self.server.handle("DELETE", path).status != HTTPStatus.OK:
            return
        self.tell(f"user deletes the ConfigMap {name}")
        for _ in range(_FIRST_RUN_STEPS):
            if any(fact.name == name for fact in self.facts[before:]):
                for replica in self.replicas:
                    replica.session.break_watches()
                if self.server.handle("DELETE", path).status == HTTPStatus.OK:
                    self.tell(f"user deletes the ConfigMap {name} unseen")
                    self._compact()
                    return
            await asyncio.sleep(_STEP_SECONDS)

    async def _hide_kinds(self) -> None:
        """Let discovery of the core group, or of all kinds, fail for some time; a new operator knows none of them."""
        if self.draw.random() < 0.8:
            await self._kill()
        seconds = self.draw.choice(_HIDDEN_SECONDS)
        self.network.hidden_kinds = self.draw.choice(("/api", "/"))
        self.network.hides_kinds_until = self._loop.time() + seconds
        self.tell(f"a gateway hides the kinds below {self.network.hidden_kinds} for {seconds:g} s")
        self.user.change()

    async def _toggle_briefly(self) -> None:
        """Pause a Thing, or take away its label, while it begins to be reconciled, and undo this soon.

        A watch may tell nothing of it.
        """
        toggle, name = self.draw.choice((self.user.toggle_label, self.user.toggle_pause)), self.draw.choice(NAMES)
        self.user.change(name)
        await asyncio.sleep(self.draw.choice(_MOMENTS))
        is_seen = self.draw.random() < 0.5
        if not is_seen:
            for replica in self.replicas:
                replica.session.break_watches()
        toggle(name)
        await asyncio.sleep(self.draw.choice(_BRIEFLY))
        toggle(name)
        if not is_seen:
            self._compact()

    def _start_replica(self, index: int | None = None) -> None:
        self._numbers += 1
        name = f"operator{self._numbers}"
        directory = self.root / f"replica-{len(self.replicas) if index is None else index}"
        directory.mkdir(exist_ok=True)
        settings = Settings(
            work_directory=directory,
            warm=False,
            workers=2,
            max_concurrent_runs=3,
            backoff_max_seconds=20.0,
            max_artifacts_bytes=0,
            mark_unsafe=False,
            shards=self.shards if self.count > 1 else 0,
            **(_LEASES if self.count > 1 else {}),  # type: ignore[arg-type]
        )
        replica = Replica(name, self.network, settings, self.watches, self.facts)
        replica.start()
        if index is None:
            self.replicas.append(replica)
        else:
            self.replicas[index] = replica

    def _watch(self) -> Watch:
        finalizer = Finalizer(FINALIZER, None, {"state": "absent"}) if self.has_finalizer else None
        return Watch(
            kinds.THING.gvk,
            RoleContent(self.root / "roles" / "thing"),
            reconcile_period_seconds=self.period,
            timeout_seconds=60.0,
            variables={"prunes": True} if self.prunes else {},
            watch_reads=True,
            manage_status=self.manages_status,
            selector=LabelSelector.compile({"matchLabels": SELECTED} if self.has_selector else None),
            finalizer=finalizer,
            status={"size": FieldPath.parse("$.stats.size")},
        )

    async def _control(self) -> None:
        """Collect garbage, and empty terminating namespaces, a moment after each change; restart what has ended."""
        changed = asyncio.Event()

        def on_change() -> None:
            if self.server.history[-1][2].get("kind") not in ("Lease", "Event"):  # nothing belongs to these
                changed.set()

        self.server.on_change.append(on_change)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESTART_SECONDS):
                    await changed.wait()
            if changed.is_set():
                changed.clear()
                await asyncio.sleep(_CONTROLLER_SECONDS)
                while self.server.collect_garbage() or self.server.finish_namespaces():
                    pass
            for index, replica in enumerate(self.replicas):
                if replica.has_exited:
                    if (error := replica.error) is not None and not isinstance(error, LeadershipLostError):
                        self.oracles.find(f"{replica.name} exited by itself: {error!r}")
                    await replica.end()
                    self._start_replica(index)

    def _end_faults(self) -> None:
        self.tell("faults end")
        self.network.fault_rate = self.network.hides_kinds_until = 0.0
        for replica in self.replicas:
            replica.session.restore()
        self.user.end()


def _strict_schema(obj: RawObject) -> list[kinds.Problem]:
    """Reject a status with a large size, and conditions without a reason, as the schema of metav1.Condition does."""
    status = obj.get("status") or {}
    found = [("status.size", "too large")] if (status.get("size") or 0) > LARGEST_SIZE else []
    return found + [("status.conditions", "no reason") for each in status.get("conditions", ()) if not each["reason"]]
