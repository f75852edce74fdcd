"""One judge's trial: each case directly, and those that pass also cold and warm, in three concurrent columns."""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from bench.judges.judges import CheckoutError, Judge, Prepared
from bench.judges.runs import (
    PROGRAMS,
    Case,
    Limit,
    control_plane,
    define,
    operator,
    project_operator,
    run_directly,
)
from bench.judges.verdicts import COLD, COLUMNS, DIRECT, WARM, Outcome
from bench.stage import progress

from rolecall.workbench.controlplane import ControlPlane

Run = Callable[[Case], Outcome]


class Trial:
    """A judge with its checkout, a directory for copies, and the options of the command."""

    def __init__(self, judge: Judge, checkout: Path, stage: Path, options: argparse.Namespace) -> None:
        self._judge, self._checkout, self._stage, self._options = judge, checkout, stage, options
        self._logs = options.keep.absolute() if options.keep else stage / "logs"
        self._outcomes: dict[str, dict[str, Outcome]] = {}
        self._limit = Limit(options.timeout, Event())

    def run(self) -> dict[str, dict[str, Outcome]]:
        """Return the outcomes of each case in each column where it ran.

        Raises CheckoutError, ControlPlaneError, or RuntimeError if a part of the trial can't start.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        prepared = {column: self._prepare(column) for column in COLUMNS}
        with ExitStack() as stack:
            workers = {column: stack.enter_context(ThreadPoolExecutor(1)) for column in COLUMNS}
            runs = {column: stack.enter_context(self._column(column, each)) for column, each in prepared.items()}
            futures: list[Future[Any]] = []
            for direct, cold, warm in zip(*(each.cases for each in prepared.values()), strict=True):
                first = workers[DIRECT].submit(self._run, runs[DIRECT], DIRECT, direct)
                for column, case in ((COLD, cold), (WARM, warm)):
                    futures.append(workers[column].submit(self._run_after, first, runs[column], column, case))
            try:
                for future in futures:
                    future.result()
            finally:
                self._limit.stopped.set()
                for worker in workers.values():
                    worker.shutdown(cancel_futures=True)
        return self._outcomes

    def _prepare(self, column: str) -> Prepared:
        """Return a column's cases that the options choose, on their own copy, for targets write next to their files."""
        copy = self._stage / column
        copy.mkdir()
        prepared = self._judge.prepare(self._checkout, copy, column, self._options.programs)
        chosen = [case for case in prepared.cases if not self._options.case or case.name in self._options.case]
        if not chosen:
            raise CheckoutError(f"{self._judge.name} has no case {' or '.join(self._options.case)}")
        return replace(prepared, cases=chosen)

    @contextmanager
    def _column(self, column: str, prepared: Prepared) -> Iterator[Run | None]:
        """Start what a column needs; yield None for a column that can't run, for lack of a peer."""
        if prepared.project and column == DIRECT and not self._options.peer:
            yield None
            return
        log = self._logs / f"{self._judge.name.replace(' ', '-')}-{column}.log"
        with control_plane(column) as plane, ExitStack() as stack:
            define(plane, prepared.cases)  # in the direct column too, so that the clusters are equal
            warm = f"--warm={str(column == WARM).lower()}"
            setting = prepared.setting
            if prepared.project:
                program = PROGRAMS / "ansible-operator"
                command = [str(program), "run", warm, "--proxy-port=0", "--user-metrics-port=0"]
                if column == DIRECT:
                    command = [str(self._options.peer.absolute()), "run"]  # its kubeconfigs name the default port
                    programs = (self._options.peer_programs or self._options.peer.parent).absolute()
                    setting = replace(setting, programs=[programs, *setting.programs])
                setting = replace(setting, environment={**setting.environment, **prepared.variables})
                command += prepared.arguments
                stack.enter_context(project_operator(plane, prepared.project, setting, log, command))
            elif column != DIRECT:
                started = operator(plane, prepared.cases, prepared.setting, log, [warm, *self._judge.arguments])
                through = stack.enter_context(started)
                yield lambda case: through.run(case, self._limit)
                return
            yield self._directly(column, plane, prepared)

    def _directly(self, column: str, plane: ControlPlane, prepared: Prepared) -> Run:
        def run(case: Case) -> Outcome:
            log = self._logs / f"{case.name}-{column}.log"
            return run_directly(case, plane, prepared.setting, self._limit, log)

        return run

    def _run(self, run: Run | None, column: str, case: Case) -> bool:
        """Run a case in a column and keep its outcomes; return whether it passed, or can't run there."""
        if run is None:
            return True
        outcome = run(case)
        if self._judge.read and not outcome.passed:
            raise RuntimeError(f"the suite can't run in the column {column}: {outcome.message}")
        found = self._judge.read(case) if self._judge.read else {case.name: outcome}
        for name, each in found.items():
            self._outcomes.setdefault(name, {})[column] = each
        verb = "passed" if outcome.passed else f"failed in {outcome.task!r}: {outcome.message}"
        progress(f"{self._judge.name}, {case.name}, {column}: {verb} after {outcome.seconds:.0f} s")
        return outcome.passed

    def _run_after(self, first: "Future[bool]", run: Run | None, column: str, case: Case) -> None:
        if first.result():
            self._run(run, column, case)
