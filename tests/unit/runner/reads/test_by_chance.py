"""Random edits, runs and interrupted watches: the last run has seen the present state, or another run is due.

The oracle is the state of the cluster: an operator that polls it could know no more.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.references import RawObject
from rolecall.runner.reads.read_sets import ReadCause
from tests.unit.manual_clock import settle
from tests.unit.runner.reads.rig import ONE, Rig, SteppedRead

NAMES = ("a", "b")
SELECTOR = "tier=web"
Seen = dict[str, Any]


def content_of(obj: RawObject) -> tuple[Any, ...]:
    return obj["metadata"]["uid"], obj["metadata"]["labels"], obj["spec"]


class Scenario:
    """An object whose runs read two widgets by name, and a list by a selector."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.seen: Seen | None = None
        self.responses: Seen = {}
        self.reads: list[SteppedRead] = []
        self.is_running = False
        self.is_due = True
        self.uids = 0

    def present(self) -> Seen:
        """Return the state that a run would see now."""
        objects = self.rig.server.objects
        found: Seen = {key.name: content_of(obj) for key, obj in objects.items()}
        selected = sorted(name for name, (_, labels, _) in found.items() if labels.get("tier") == "web")
        return {name: found.get(name) for name in NAMES} | {"list": [(name, found[name]) for name in selected]}

    def put(self, name: str, value: int, tier: str) -> None:
        """Create or change a widget."""
        if (known := next((o for k, o in self.rig.server.objects.items() if k.name == name), None)) is None:
            self.uids += 1
        uid = known["metadata"]["uid"] if known else f"uid-{self.uids}"
        self.rig.server.put(name, labels={"tier": tier}, spec={"value": value}, uid=uid)

    def delete(self, name: str) -> None:
        """Delete a widget if it exists."""
        if any(key.name == name for key in self.rig.server.objects):
            self.rig.server.remove(name)

    def start(self) -> None:
        """Start a run, which reads everything."""
        if not self.is_running:
            self.is_running, self.is_due, self.responses = True, False, {}
            self.rig.start()
            self.reads = [*(self.rig.ask(name) for name in NAMES), self.rig.ask(selector=SELECTOR)]

    def look(self) -> None:
        """Let the API server respond to one request of the run."""
        number = len(self.responses)
        if self.is_running and number < len(self.reads):
            self.reads[number].look()
            part = (*NAMES, "list")[number]
            self.responses[part] = self.present()[part]

    def end(self, *, successful: bool) -> None:
        """Let all responses arrive, and end the run."""
        if not self.is_running:
            return
        while len(self.responses) < len(self.reads):
            self.look()
        for read in self.reads:
            read.arrive()
        self.is_running = False
        causes = self.rig.sets.end(ONE.key, successful=successful)
        self.is_due |= not successful or bool(causes)
        if successful:
            self.seen = self.responses

    def break_watches(self) -> None:
        """End the watches and forget their history."""
        self.rig.server.forget_history()
        self.rig.server.end_streams()

    def enqueue(self, _key: object, _cause: ReadCause) -> None:
        """Record that another run is due."""
        self.is_due = True


NAME = st.sampled_from(NAMES)
STEPS: st.SearchStrategy[Callable[[Scenario], Any]] = st.one_of(
    st.builds(
        lambda name, value, tier: lambda scenario: scenario.put(name, value, tier),
        NAME,
        st.integers(0, 1),
        st.sampled_from(("web", "db")),
    ),
    st.builds(lambda name: lambda scenario: scenario.delete(name), NAME),
    st.just(Scenario.start),
    st.just(Scenario.look),
    st.booleans().map(lambda successful: lambda scenario: scenario.end(successful=successful)),
    st.just(Scenario.break_watches),
    st.just(None),
    st.sampled_from((1, 3, 10, 30)),
)


async def play(steps: list[Any]) -> None:
    scenario = Scenario()
    scenario.rig.sets.enqueue = scenario.enqueue
    async with scenario.rig.watches.running():
        for step in steps:
            if step is None:
                await scenario.rig.recover()
            elif isinstance(step, int):
                await settle(step)
            else:
                step(scenario)
        for _ in range(10):
            scenario.end(successful=True)
            await scenario.rig.recover()
            if not scenario.is_due:
                break
            scenario.start()
        assert not scenario.is_due, "the runs don't end"
        assert scenario.seen == scenario.present()


@given(st.lists(STEPS, max_size=40))
def test_last_run_has_seen_the_present_state(steps: list[Any]) -> None:
    asyncio.run(play(steps))
