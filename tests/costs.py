"""Costs of tests and fixtures: their wall time and CPU time, including that of child processes.

This pytest plugin prints the parts of a run with the longest wall time: ``--costs N`` prints N parts, and CI prints 25.
A part is the collection, the setup, call, or teardown of a test, or the setup or teardown of a fixture. A line contains
all uses of a fixture, and with pytest-xdist the sum over all workers.

No time counts twice: the times of a test or fixture exclude the fixtures that it requests. The CPU time of a child
process counts for the part that waits for the end of the process: that of a server for the teardown of its fixture, for
example. The CPU time of a process for which the run never waits is missing.
"""

import os
import resource
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pytest

PARTS_IN_CI = 25


class Times(NamedTuple):
    """Seconds of wall time, and of CPU time of this process and its children."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Times":
        """Return the present times. Only differences are meaningful."""
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in uses))

    def plus(self, other: "Times", sign: int = 1) -> "Times":
        """Return the sum with other times, or with sign -1 the difference."""
        return Times(self.wall + sign * other.wall, self.cpu + sign * other.cpu)


NO_TIMES = Times(0, 0)


@dataclass
class Cost:
    """The times of all uses of one part."""

    times: Times = NO_TIMES
    uses: int = 0

    def add(self, times: Times, uses: int = 1) -> None:
        """Add the times of some uses."""
        self.times = self.times.plus(times)
        self.uses += uses


class Worker(Protocol):
    """The node of a pytest-xdist worker, as far as it is used here."""

    workeroutput: dict[str, Any]


@dataclass(eq=False)  # pytest needs plugins that can be hashed
class Costs:
    """The plugin: it measures in each process that runs tests, and prints in the one with the terminal."""

    lines: int
    """How many parts to print."""

    parts: dict[str, Cost] = field(default_factory=dict)
    """The costs by the name of the part."""

    nested: list[Times] = field(default_factory=list)
    """The times that each unfinished part excludes, the innermost part last."""

    @contextmanager
    def measured(self, part: str) -> Generator[None]:
        """Add the duration of the context to a part, except the parts measured within it."""
        self.nested.append(NO_TIMES)
        begin = Times.now()
        try:
            yield
        finally:
            whole = Times.now().plus(begin, -1)
            inner = self.nested.pop()
            if self.nested:
                self.nested[-1] = self.nested[-1].plus(whole)
            self.parts.setdefault(part, Cost()).add(whole.plus(inner, -1))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Measure the collection."""
        with self.measured("collection"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Measure the setup of a test."""
        with self.measured(f"setup {item.nodeid}"):
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Measure a test."""
        with self.measured(f"call {item.nodeid}"):
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Measure the teardown of a test."""
        with self.measured(f"teardown {item.nodeid}"):
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Measure the setup of a fixture, and later its teardown."""
        name = f"fixture {fixturedef.baseid}::{fixturedef.argname}"
        # Finalizers run in reverse order: the last one added below starts the measurement that the first one ends.
        teardown = self.measured(f"teardown {name}")
        fixturedef.addfinalizer(lambda: teardown.__exit__(None, None, None))
        try:
            with self.measured(f"setup {name}"):
                return (yield)
        finally:
            fixturedef.addfinalizer(teardown.__enter__)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker of pytest-xdist, send the costs to the process with the terminal."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["costs"] = {part: (*cost.times, cost.uses) for part, cost in self.parts.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Worker) -> None:
        """Add the costs of a worker. One that crashed has none."""
        sent: Mapping[str, tuple[float, float, int]] = getattr(node, "workeroutput", {}).get("costs", {})
        for part, (wall, cpu, uses) in sent.items():
            self.parts.setdefault(part, Cost()).add(Times(wall, cpu), uses)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the parts with the longest wall time, and the sum of all."""
        terminalreporter.section("costs, by wall time")
        terminalreporter.line("  wall s   CPU s   uses")
        longest = sorted(self.parts.items(), key=lambda each: each[1].times.wall, reverse=True)
        for part, cost in longest[: self.lines]:
            terminalreporter.line(line(part, cost))
        total = Cost()
        for cost in self.parts.values():
            total.add(cost.times, cost.uses)
        terminalreporter.line(line(f"all {len(self.parts):,} parts", total))


def line(part: str, cost: Cost) -> str:
    """Return the line of a part, under the titles of the columns."""
    return f"{cost.times.wall:8.2f}{cost.times.cpu:8.2f}{cost.uses:7,}  {part}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--costs``."""
    parser.addoption(
        "--costs",
        type=int,
        metavar="N",
        default=PARTS_IN_CI if "CI" in os.environ else 0,
        help=f"print wall and CPU time of the N longest tests and fixtures (default: {PARTS_IN_CI} in CI, else 0)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure only if the costs are printed."""
    if config.option.costs:
        config.pluginmanager.register(Costs(config.option.costs), "costs-of-tests")
