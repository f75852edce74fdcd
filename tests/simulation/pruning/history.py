"""A history about prune: users, roles, and faults around one or several operators, all drawn from one seed."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from rolecall.kube.metadata import labels_of
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.election.elector import LeadershipLostError
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.process import RunSpec
from rolecall.runner.runs.variables import object_variable
from tests.simulation.cluster import Answer, SimulatedApiServer
from tests.simulation.history import Options, Report
from tests.simulation.kinds import THING
from tests.simulation.network import Network, Session
from tests.simulation.pruning.kinds import CLUSTER, KINDS, USER
from tests.simulation.pruning.oracle import Oracle, Truth
from tests.simulation.pruning.roles import (
    GATE_KINDS,
    LABEL,
    Gate,
    PruningFact,
    PruningPlay,
    RoleModel,
    RoleState,
    draw_model,
    draw_palette,
)
from tests.simulation.pruning.user import OPTIONS, PruningUser
from tests.simulation.replica import EPOCH, Replica
from tests.simulation.runs import NAMESPACE, Play, RunError, RunFact, SimulatedRunner

_ROUNDS: Final = (3, 6)
_BEFORE, _AFTER = (0, 1, 1, 2, 3), (0, 0, 1, 1, 2)
"""How many steps happen before and after the edit of a round."""

_EDITED: Final = 0.9
_PAUSES: Final = (0.05, 0.3, 1.0, 4.0, 8.0, 15.0)
_RUNS_SECONDS: Final = (12.0, 35.0)
"""The time for the runs of a deletion, in addition to that of the task."""

_EMPHASES: Final = (0.0, 0.0, 0.5, 1.0, 4.0)
"""How much more often than usual a step happens: most histories have only some kinds of steps."""

_CONTROL_SECONDS: Final = 0.4
_RESTART_SECONDS: Final = 5.0
_JUMPS: Final = (-86_400.0, -7_200.0, -60.0, 60.0, 3_600.0, 86_400.0)
_LEASES: Final = {"leader_elect": True, "leader_election_id": "operator", "leader_election_namespace": NAMESPACE}

_FAULTY: Final = 0.5
"""The share of histories with faults."""

FAULTS: Final = 0.04
"""The usual share of requests with a fault: a run with one can't prune."""


class PruningRunner(SimulatedRunner):
    """Runs the roles of a history, and notes what they do."""

    def __init__(self, history: "PruningHistory", replica: Replica, facts: list[RunFact]) -> None:
        super().__init__(replica, facts)
        self._history = history

    def _new_play(  # noqa: PLR0913, PLR0917 - of the base class
        self,
        proxy: Proxy,
        secret: str,
        variables: dict[str, Any],
        draw: Callable[[float, float], float],
        fact: RunFact,
        spec: RunSpec,
    ) -> Play:
        play = super()._new_play(proxy, secret, variables, draw, fact, spec)
        obj, kind = variables[object_variable(spec.workspace.gvk)], spec.workspace.gvk.kind
        model, truth = self._history.models[kind], self._history.truth
        number = sum(1 for _ in truth.runs_of(fact.uid))
        noted = PruningFact(
            *(fact.replica, fact.uid, fact.name, kind, obj.get("spec") or {}, model.state, number, fact.started)
        )
        truth.runs.append(noted)
        pruning = PruningPlay(play, self._history, noted, model)
        pruning.is_even = int(labels_of(obj).get(LABEL, "0")) % 2 == 0
        return pruning

    async def _play(self, play: Any) -> Outcome:
        pruning = cast("PruningPlay", play)
        error = None
        try:
            await pruning.run()
            pruning.has_ended = True
        except RunError as raised:
            error = raised
        finally:
            fact = pruning.fact
            fact.ended, fact.wall_ended = asyncio.get_running_loop().time(), self._replica.clock.now()
            fact.is_lost |= error is None and not pruning.has_ended
        outcome = pruning.finish(error)
        fact.status = outcome.status
        self._replica.tell(
            f"run {fact.number} of {fact.kind} {fact.primary}: {fact.status}, {fact.doubts or ''} {error or ''}"
        )
        return outcome


class PruningHistory:
    """The history of one seed."""

    def __init__(self, seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        self.seed, self.root, self._loop = seed, root, loop
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.draw = random.Random(f"prune {seed}")  # noqa: S311 - no secret
        self.story: list[str] = []
        self.server = SimulatedApiServer(lambda: EPOCH + loop.time(), KINDS)
        self.network = Network(self.server, self.chance, self.tell)
        self.facts: list[RunFact] = []
        self.replicas: list[Replica] = []
        self.jumps: list[tuple[float, str, float]] = []
        """When the wall clock of which replica has jumped, and by how many seconds."""

        self.open_gates: set[Gate] = set()
        self.is_outside_open = True
        self.truth = Truth(self)
        self.oracles = Oracle(self, self.truth)
        self.fault_rate = options.fault_rate if self.draw.random() < _FAULTY else 0.0
        self.often = options.often
        mode = self.draw.random()
        self.count = options.replicas or (1 if mode < 0.85 else 2)
        self.shards = 4 if mode >= 0.92 else 0
        self.period = self.draw.choice((None, None, 7.0, 30.0))
        self.models: dict[str, RoleModel] = {}
        for model in self.draw_models():
            self.models[model.kind.gvk.kind] = model
            self.truth.states[model.kind.gvk.kind] = [(0.0, model.state)]
            self.write_role(model)
        self.user = PruningUser(self, self.draw)
        self._numbers = 0
        self._kill_at = 0
        self.network.observers.append(self._count_down)

    def draw_models(self) -> list[RoleModel]:
        """Draw the roles of the operators."""
        kinds = [THING]
        kinds += [CLUSTER] if self.draw.random() < 0.3 else []
        kinds += [USER] if self.draw.random() < 0.5 else []
        palette = draw_palette(self.draw)
        models = [draw_model(kind, palette, self.draw) for kind in kinds]
        for model in models:
            model.prunes = model.kind is not USER
        return models

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self._loop.time():10.3f} {text}")

    def wall(self) -> float:
        """Return the wall clock of the first replica."""
        return self.replicas[0].clock.now()

    def wall_of(self, name: str, jumped_until: float) -> float:
        """Return the wall clock of a replica, without the jumps after a time."""
        later = sum(seconds for at, replica, seconds in self.jumps if replica == name and at > jumped_until)
        return next(each.clock.now() for each in self.replicas if each.name == name) - later

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """Let something happen later."""
        self._loop.call_later(seconds, do)

    def settle(self) -> None:
        """Let the garbage collector and the namespace controller do what they can."""
        while self.server.collect_garbage() or self.server.finish_namespaces():
            pass

    async def run(self) -> Report:
        """Play the history, and return what it has found."""
        controllers = asyncio.create_task(self._control())
        self.begin()
        for _ in range(self.count):
            self._start_replica()
        self.network.fault_rate = self.fault_rate
        await self.happen()
        for replica in self.replicas:
            await replica.stop()
        controllers.cancel()
        for path in self.truth.unreadable[:1]:
            self.oracles.find(f"nothing reads the inventory of {path}")
        self.network.faults["deletions"] = len(self.oracles.deletions)
        return Report(
            self.seed,
            self.oracles.findings,
            self.story,
            len(self.facts),
            self.network.requests,
            self._loop.time(),
            self.network.faults,
        )

    def begin(self) -> None:
        """Create what exists before the operators."""
        self.user.begin()

    async def happen(self) -> None:
        """Let rounds of steps happen, each with an edit, and time for what it makes obsolete."""
        await asyncio.sleep(self.draw.uniform(2.0, 15.0))
        others = self.user.steps() | {
            self._release: 5,
            self._change_variables: 2,
            self.restart: 4,
            self._kill: 2,
            self._kill_between_requests: 3,
            self._jump: 4,
        }
        edits = {step: weight * self._oftenness(step) for step, weight in self.user.edits().items()}
        others = self._emphasized(others)
        after = max(model.after_seconds for model in self.models.values())
        for _ in range(self.draw.randint(*_ROUNDS)):
            for _ in range(self.draw.choice(_BEFORE)):
                await self._step(others)
                await asyncio.sleep(self.draw.choice(_PAUSES))
            if self.draw.random() < _EDITED:
                await self._step(edits)
            for _ in range(self.draw.choice(_AFTER)):
                await asyncio.sleep(self.draw.choice(_PAUSES))
                await self._step(others)
            await asyncio.sleep(after + self.draw.uniform(*_RUNS_SECONDS))
        self.network.fault_rate = 0.0
        for gate in GATE_KINDS:
            self.user.set_gate(gate, is_open=True)
        await asyncio.sleep(after + _RUNS_SECONDS[1])

    def _emphasized(self, steps: dict[Callable[[], object], float]) -> dict[Callable[[], object], float]:
        """Return steps with weights that differ between histories."""
        return {
            step: weight * max(self.draw.choice(_EMPHASES), self._oftenness(step) - 1.0, 0.001)
            for step, weight in steps.items()
        }

    def _oftenness(self, step: Callable[[], object]) -> float:
        """Return how much more often than usual a step must happen."""
        return 10.0 if getattr(step, "__name__", "") == self.often else 1.0

    async def _step(self, steps: dict[Callable[[], object], float]) -> None:
        """Let a user do something, or let something happen to an operator."""
        waiting = self.draw.choices(list(steps), list(steps.values()))[0]()
        if asyncio.iscoroutine(waiting):
            await waiting

    # What happens to the operators.

    def write_role(self, model: RoleModel) -> None:
        """Write the files of a role in its present release."""
        path = self.root / "roles" / model.kind.gvk.kind / "tasks"
        path.mkdir(parents=True, exist_ok=True)
        task = "- rolecall.util.prune:\n" if model.prunes else ""
        state = json.dumps([sorted(model.state.left_out), "#" * model.state.release])  # its size is its release
        (path / "main.yml").write_text(f"{task}# {state}\n")

    def change_role(self, model: RoleModel, state: RoleState) -> None:
        """Change the state of a role."""
        model.state = state
        self.truth.states[model.kind.gvk.kind].append((self._loop.time(), state))
        self.write_role(model)
        self.tell(f"the role of {model.kind.gvk.kind} is {state}")

    def _drawn_model(self) -> RoleModel:
        return self.draw.choice(list(self.models.values()))

    async def _release(self) -> None:
        """Release a role: it leaves out items, by intention or by mistake, or makes them again."""
        model = self._drawn_model()
        left_out = model.state.left_out ^ {self.draw.choice(model.items).suffix}
        if self.draw.random() < 0.2:
            left_out = model.state.left_out  # another text only
        self.change_role(model, replace(model.state, release=model.state.release + 1, left_out=left_out))
        match self.draw.randrange(4):
            case 0:
                await self.restart()
            case 1:
                self.user.toggle_option()
            case 2:
                self.user.request()

    async def _change_variables(self) -> None:
        """Start the operators again with other variables of a role."""
        model = self._drawn_model()
        options = model.state.options ^ {self.draw.choice(OPTIONS)}
        for replica in self.replicas:
            await replica.stop()
        self.change_role(model, replace(model.state, options=options))
        for index in range(len(self.replicas)):
            self._start_replica(index)

    async def restart(self) -> None:
        """Stop an operator, and start it again."""
        index = self.draw.randrange(len(self.replicas))
        self.truth.killed(self.replicas[index].name)
        await self.replicas[index].stop()
        self.truth.killed(self.replicas[index].name)
        self._start_replica(index)

    async def _kill(self) -> None:
        index = self.draw.randrange(len(self.replicas))
        self.truth.killed(self.replicas[index].name)
        await self.replicas[index].kill()
        await asyncio.sleep(self.draw.choice((0.1, 3.0, 20.0)))
        self._start_replica(index)

    def _kill_between_requests(self) -> None:
        """Kill an operator after some more requests."""
        self._kill_at = self.network.requests + self.draw.choice((1, 3, 10, 30, 60))

    def _count_down(self, session: Session, *_: Answer | Any) -> None:
        if self._kill_at and self.network.requests >= self._kill_at:
            self._kill_at = 0
            index = next((i for i, each in enumerate(self.replicas) if each.session is session), None)
            if index is not None:
                session.kill()
                work = self._kill_at_once(index)
                self._killing = self._loop.create_task(work, context=Context())  # not a task of the replica

    async def _kill_at_once(self, index: int) -> None:
        self.truth.killed(self.replicas[index].name)
        await self.replicas[index].kill()
        self._start_replica(index)

    def _jump(self) -> None:
        """Let the wall clock of an operator jump."""
        replica, seconds = self.draw.choice(self.replicas), self.draw.choice(_JUMPS)
        replica.clock.offset_seconds += seconds
        self.jumps.append((self._loop.time(), replica.name, seconds))
        self.tell(f"the clock of {replica.name} jumps by {seconds:g} s")

    def _start_replica(self, index: int | None = None) -> None:
        self._numbers += 1
        directory = self.root / f"replica-{len(self.replicas) if index is None else index}"
        directory.mkdir(exist_ok=True)
        settings = Settings(
            work_directory=directory,
            warm=False,
            workers=3,
            max_concurrent_runs=4,
            backoff_max_seconds=10.0,
            max_artifacts_bytes=0,
            mark_unsafe=False,
            shards=self.shards if self.count > 1 else 0,
            **(_LEASES if self.count > 1 else {}),  # type: ignore[arg-type]
        )
        watches = tuple(self._watch(model) for model in self.models.values())
        runner = partial(PruningRunner, self)
        replica = Replica(f"operator{self._numbers}", self.network, settings, watches, self.facts, runner)
        if index is None:
            self.replicas.append(replica)
        else:
            replica.clock.offset_seconds = self.replicas[index].clock.offset_seconds
            self.replicas[index] = replica
        replica.start()

    def _watch(self, model: RoleModel) -> Watch:
        return Watch(
            model.kind.gvk,
            RoleContent(self.root / "roles" / model.kind.gvk.kind),
            reconcile_period_seconds=self.period,
            timeout_seconds=60.0,
            variables={"shared_options": sorted(model.state.options)},
            watch_reads=True,
        )

    async def _control(self) -> None:
        """Let controllers act a moment after each change; restart what has ended."""
        changed = asyncio.Event()

        def on_change() -> None:
            if self.server.history[-1][2].get("kind") not in ("Lease", "Event"):
                changed.set()

        self.server.on_change.append(on_change)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESTART_SECONDS):
                    await changed.wait()
            if changed.is_set():
                await asyncio.sleep(_CONTROL_SECONDS)
                changed.clear()
                self.settle()
                self.user.control()
            for index, replica in enumerate(self.replicas):
                if replica.has_exited:
                    if (error := replica.error) is not None and not isinstance(error, LeadershipLostError):
                        self.oracles.find(f"{replica.name} exited by itself: {error!r}")
                    self.truth.killed(replica.name)
                    await replica.end()
                    self._start_replica(index)
