"""Shows the objects of a demo until every one has reached its goal, or one never will.

The objects are those of the goals' kinds: of a cluster-scoped kind all, of another kind those in the samples'
namespaces. On a terminal the table is live; otherwise it is one line for each change. Why an object isn't ready is
below the table, once for equal reasons, or at the end of the line.

Recorded demos are for permissions. A first run creates what later ones change, with other permissions. So each object
gets another run after it has reached its goal.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rolecall.kube.client import Client
from rolecall.kube.metadata import status_of
from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.reconcile.context import RECONCILE_REQUESTED_AT_ANNOTATION
from rolecall.workbench.project.demo_inputs import Goal, OperatorProcess
from rolecall.workbench.project.demo_runs import ENOUGH_FAILURES, Failure

LOOK_EVERY_SECONDS = 0.5
_DONE, _WAITING = "done", "…"
_ENOUGH_SUCCESSES = 2
"""The recorded runs of an object: one that creates its dependents, and one that finds them."""


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of one object, and why it isn't done if that is known."""

    kind: str
    name: str
    condition: str
    values: str
    took: str
    is_done: bool
    reason: str = ""


@contextmanager
def status_table(console: Console) -> Iterator[Callable[[list[Row]], None]]:
    """Yield a function that shows the current rows: as a live table on a terminal, otherwise as a line per change.

    The last table stays on a terminal; otherwise it is printed at the end.
    """
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda rows: live.update(_table(rows), refresh=True)
        return
    shown: dict[tuple[str, str], Row] = {}

    def show(rows: list[Row]) -> None:
        for row in rows:
            before = shown.get((row.kind, row.name))
            if before != row:
                shown[row.kind, row.name] = row
                mark = _DONE if row.is_done else _WAITING
                why = f"  {row.reason}" if row.reason and (before is None or before.reason != row.reason) else ""
                line = f"{row.kind:<11} {row.name:<40} {row.condition:<11} {row.values}  {row.took:>7}  {mark}{why}"
                console.print(line, soft_wrap=True, highlight=False, markup=False)

    yield show
    if shown:
        console.print(_table(shown.values()))


def _table(rows: Iterable[Row]) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("KIND", "OBJECT", "CONDITION", "STATUS", "LAST RUN", ""):
        # You need names in full to use them; only the status may take several lines.
        table.add_column(title, no_wrap=title != "STATUS", overflow="fold")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        mark = f"[green]{_DONE}[/green]" if row.is_done else _WAITING
        table.add_row(*map(escape, (row.kind, row.name, row.condition, row.values, row.took)), mark)
        if row.reason:
            reasons.setdefault(row.reason, []).append(f"{row.kind} {row.name}")
    return Group(table, *(Text(f"{', '.join(names)}: {why}", style="red") for why, names in reasons.items()))


class NotReadyError(Exception):
    """An object that doesn't reach its goal; the message has the reason, and ``is_denied`` is set for a permission."""

    def __init__(self, message: str, *, is_denied: bool = False) -> None:
        super().__init__(message)
        self.is_denied = is_denied


@dataclass(slots=True)
class Progress:
    """Poll the objects of the goals' kinds until all are done, or one never will be.

    ``namespaces`` are those of the samples. If ``is_recorded``, each object has several runs.
    """

    goals: tuple[Goal, ...]
    namespaces: tuple[str, ...]
    operator: OperatorProcess
    timeout_seconds: float
    is_recorded: bool = False
    _requested: dict[tuple[str, str], int] = field(default_factory=dict)
    """The successes of each object when its second run was requested."""

    async def until_done(self, kubeconfig: Path, console: Console) -> str:
        """Show the table until every object is done, and return how long that took. Raise NotReadyError."""
        started = time.monotonic()
        error: NotReadyError | None = None
        async with await Client.connect(str(kubeconfig)) as client:
            with status_table(console) as show:
                while True:
                    rows = await self._rows(client)
                    show(rows)
                    took = time.monotonic() - started
                    if await self._is_done(client, rows) or (error := self._hopeless(rows, took)) is not None:
                        break
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
        if error is not None:
            raise error
        return format_duration(round(took, 1))

    async def _rows(self, client: Client) -> list[Row]:
        self.operator.read_log()
        rows = []
        for goal in self.goals:
            # A kind without a namespace has no objects below one, and without such samples a role creates the objects.
            is_namespaced = (await client.resource(goal.gvk)).namespaced
            for namespace in (is_namespaced and self.namespaces) or (None,):
                async for objects, _ in client.list_pages(goal.gvk, namespace):
                    rows += [self._row(goal, obj) for obj in objects]
        return rows

    def _row(self, goal: Goal, obj: RawObject) -> Row:
        """Return the row of an object, with the most important condition that is true."""
        name = str(ObjectKey.of_object(obj))
        conditions = [each for each in status_of(obj).get("conditions") or () if isinstance(each, dict)]
        true = {each.get("type"): each for each in conditions if each.get("status") == "True"}
        condition = next((kind for kind in ("Failure", "Successful", "Running") if kind in true), "-")
        runs, is_done = self.operator.runs.of(goal.gvk.kind, name), goal.is_reached(obj)
        # While the next run has started, only the log still has the reason.
        failure = Failure.of(str(true["Failure"].get("message"))) if "Failure" in true else runs.failure
        reason = "" if is_done or failure is None else str(failure)
        return Row(goal.gvk.kind, name, condition, goal.values(obj), runs.duration, is_done, reason)

    async def _is_done(self, client: Client, rows: list[Row]) -> bool:
        found = {row.kind for row in rows}
        is_reached = all(goal.gvk.kind in found for goal in self.goals) and all(row.is_done for row in rows)
        if is_reached and self.is_recorded:
            kinds = {goal.gvk.kind: goal.gvk for goal in self.goals}
            # Not a generator: each object's run is requested, also if an earlier one isn't done.
            return all([await self._had_another_run(client, kinds[row.kind], row) for row in rows])
        return is_reached

    async def _had_another_run(self, client: Client, gvk: GVK, row: Row) -> bool:
        """Return whether an object had a run after it reached its goal; request that run if it wasn't requested yet."""
        successes = self.operator.runs.of(row.kind, row.name).successes
        if (row.kind, row.name) not in self._requested:
            self._requested[row.kind, row.name] = successes
            request = {RECONCILE_REQUESTED_AT_ANNOTATION: datetime.now(UTC).isoformat()}
            await client.patch(gvk, _key(row.name), {"metadata": {"annotations": request}})
        return successes >= max(_ENOUGH_SUCCESSES, self._requested[row.kind, row.name] + 1)

    def _hopeless(self, rows: list[Row], took: float) -> NotReadyError | None:
        """Return why the demo can't be done any longer, None if it can."""
        for goal in self.goals:
            if (denied := self.operator.runs.denied(goal.gvk)) is not None:
                return NotReadyError(f"The operator can't watch {goal.gvk.kind}: {denied}", is_denied=True)
        waiting = [row for row in rows if self.is_recorded or not row.is_done]
        for row in waiting:
            runs = self.operator.runs.of(row.kind, row.name)
            if runs.failure is not None and runs.failures >= ENOUGH_FAILURES:
                return self._failed(runs.failure, waiting)
        if not self.operator.has_ended and took <= self.timeout_seconds:
            return None
        return self._stopped(rows)

    def _failed(self, failure: Failure, rows: list[Row]) -> NotReadyError:
        names = [
            f"{row.kind} {row.name}" for row in rows if self.operator.runs.of(row.kind, row.name).failure == failure
        ]
        task = f"\n  task: {failure.task}" if failure.task else ""
        text = f"{', '.join(names)} failed {ENOUGH_FAILURES} times in the same way:{task}\n  reason: {failure.reason}"
        return NotReadyError(text, is_denied=failure.is_denied)

    def _stopped(self, rows: list[Row]) -> NotReadyError:
        found = {row.kind for row in rows}
        waiting = [f"{row.kind} {row.name}" for row in rows if not row.is_done]
        waiting += [f"any {goal.gvk.kind}: no object found" for goal in self.goals if goal.gvk.kind not in found]
        waiting = waiting or ["another run of each object"]
        why = "The operator exited" if self.operator.has_ended else f"Timed out after {self.timeout_seconds:.0f} s"
        log = self.operator.warnings()
        said = f"The last warnings of its log:\n{log}" if log else "Its log has no warnings."
        return NotReadyError(f"{why}, waiting for {', '.join(waiting)}. {said}")


def _key(name: str) -> ObjectKey:
    namespace, _, name = name.rpartition("/")
    return ObjectKey(namespace, name)
