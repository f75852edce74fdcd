"""Builds the summary of a run from its events.

A ``RunSummaryBuilder`` is given the events one by one and, at the end, how the run ended. It decides what failed: a
task whose failure was ignored or rescued in a block did not fail; an unreachable host did; and a play without a recap
failed for the reason that Ansible printed. It keeps a few lines of text, never all events.
"""

import itertools
import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rolecall.kube.quantities import parse_duration
from rolecall.runner.runs.events import Counts, RunEvent, RunSummary, Status, TaskFailure, cut

_FAILED = "runner_on_failed"
_ITEM_FAILED = "runner_item_on_failed"
_UNREACHABLE = "runner_on_unreachable"
_TASK_STARTED = ("playbook_on_task_start", "playbook_on_handler_task_start")
_NO_HOSTS = ("playbook_on_no_hosts_matched", "playbook_on_no_hosts_remaining")
_STATS = "playbook_on_stats"
_HOST_STARTED = "runner_on_start"
_ERROR_LINE = re.compile(r"^(?:\[ERROR\]:|ERROR!)\s*(.*)")
_ORIGIN_LINE = re.compile(r"^Origin:\s*(.*)")
_TAIL_LINES = 60
_TAIL_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: status, exit code of Ansible and duration; a reason if it was not Ansible that ended it."""

    status: Status
    rc: int | None = None
    duration_seconds: float = 0.0
    reason: str = ""
    peak_memory_bytes: int = 0


class RunSummaryBuilder:
    """Collects the events of one run; ``finish`` returns its summary.

    With ``unreachable_ok``, an unreachable host and a play without hosts are not failures.
    """

    def __init__(self, *, unreachable_ok: bool = False) -> None:
        self._unreachable_ok = unreachable_ok
        self._failed: list[RunEvent] = []
        self._last_failed: dict[str, RunEvent] = {}
        self._unreachable: list[RunEvent] = []
        self._items: dict[tuple[str, str], str] = {}
        self._recap: RunEvent | None = None
        self._has_skipped_play = False
        self._task = ""
        self._last_created = ""
        self._requeue: tuple[float | None, float | None] = (None, None)
        self._requeue_failure: TaskFailure | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def add(self, event: RunEvent) -> None:
        """Add the next event, in the order in which Ansible emitted them."""
        self._last_created = event.created or self._last_created
        self._tail.extend(event.stdout.splitlines())
        if event.name in _TASK_STARTED:
            self._task = event.task
        elif event.name == _HOST_STARTED:
            self._last_failed.pop(event.host, None)
        elif event.name == _ITEM_FAILED:
            self._items.setdefault((event.task_id, event.host), event.message)
        elif event.name == _FAILED and not event.ignored:
            self._failed.append(event)
            self._last_failed[event.host] = event
        elif event.name == _UNREACHABLE:
            self._unreachable.append(event)
        elif event.name in _NO_HOSTS:
            self._has_skipped_play = True
        elif event.name == _STATS:
            self._recap, self._task = event, ""
        if event.requeue is not None:
            self._note_requeue(event, event.requeue)

    def finish(self, ending: Ending) -> RunSummary:
        """Return the summary of the run."""
        failures = self._failures(ending)
        status: Status = ending.status
        if status == "successful" and failures:
            status = "failed"
        elif not failures:
            status = "successful"
        after, at = self._requeue
        counts = self._recap.counts if self._recap else {}
        return RunSummary(
            status=status,
            rc=ending.rc,
            failures=tuple(failures),
            unreachable=bool(counts.get("dark")) or (self._recap is None and bool(self._unreachable)),
            counts=_counts(counts),
            completion=_go_time(self._recap.created if self._recap else self._last_created),
            requeue_after_seconds=after,
            requeue_at=at,
            stats=self._recap.stats if self._recap else {},
            duration_seconds=ending.duration_seconds,
            stdout_tail=self._stdout_tail(),
            peak_memory_bytes=ending.peak_memory_bytes,
        )

    def _note_requeue(self, event: RunEvent, wish: Mapping[str, Any]) -> None:
        try:
            self._requeue = _read_requeue(wish)
        except (TypeError, ValueError, OverflowError) as error:
            reason = "its result is hidden by no_log" if event.censored else str(error)
            message = f"cannot tell when to run again: {reason}"
            self._requeue_failure = TaskFailure(event.task, event.host, message)

    def _failures(self, ending: Ending) -> list[TaskFailure]:
        failures = [TaskFailure(event.task, event.host, self._message(event)) for event in self._unrescued()]
        if not self._unreachable_ok:
            failures += [_unreachable(event) for event in self._unreachable if self._counts_as_unreachable(event)]
        if self._requeue_failure:
            failures.append(self._requeue_failure)
        if ending.reason:
            failures.append(TaskFailure(self._task, "", cut(ending.reason)))
        elif not failures:
            failures += self._failures_without_task(ending)
        return failures

    def _failures_without_task(self, ending: Ending) -> list[TaskFailure]:
        is_only_unreachable = ending.status == "failed" and self._recap is not None and self._recap.counts.get("dark")
        if self._unreachable_ok and is_only_unreachable:
            return []
        if self._recap is None or ending.status != "successful":
            return [TaskFailure(self._task, "", self._printed_reason(ending))]
        if self._has_skipped_play and not self._recap.counts.get("processed") and not self._unreachable_ok:
            return [TaskFailure("", "", "no host of the inventory matches the play, so nothing was done")]
        return []

    def _unrescued(self) -> list[RunEvent]:
        """Return the failures that were not rescued.

        The recap counts a host's rescued and its final failures apart. A host goes on after a rescue and stops after a
        final failure, so that its final ones are its last ones. Without a recap a host that went on was rescued.
        """
        if self._recap is None:
            return list(self._last_failed.values())
        left = Counter({host: int(count) for host, count in self._recap.counts.get("failures", {}).items()})
        standing: list[RunEvent] = []
        for event in reversed(self._failed):
            if left[event.host] > 0:
                left[event.host] -= 1
                standing.append(event)
        return standing[::-1]

    def _counts_as_unreachable(self, event: RunEvent) -> bool:
        return self._recap is None or event.host in self._recap.counts.get("dark", {})

    def _message(self, event: RunEvent) -> str:
        return self._items.get((event.task_id, event.host)) or event.message or "failed without a message"

    def _printed_reason(self, ending: Ending) -> str:
        """Return Ansible's last error with its position, or else the end of its output."""
        lines = list(self._tail)
        errors = [number for number, line in enumerate(lines) if _ERROR_LINE.match(line)]
        if errors:
            return cut(_error_text(lines[errors[-1] :]))
        printed = " | ".join(line.strip() for line in lines[-3:] if line.strip())
        ended = "the play ended early" if ending.rc is None else f"ansible-playbook ended with exit code {ending.rc}"
        return cut(f"{ended}: {printed}" if printed else f"{ended} and printed nothing")

    def _stdout_tail(self) -> str:
        return "\n".join(line for line in self._tail if line.strip())[-_TAIL_CHARACTERS:]


def _error_text(lines: list[str]) -> str:
    """Return the error that starts in the first line, with its position in brackets."""
    place = next((number for number, line in enumerate(lines) if _ORIGIN_LINE.match(line)), len(lines))
    body = list(itertools.takewhile(str.strip, lines[:place]))
    text = _ERROR_LINE.sub(r"\1", " ".join(line.strip() for line in body))
    return text + "".join(_ORIGIN_LINE.sub(r" (\1)", line) for line in lines[place : place + 1])


def _unreachable(event: RunEvent) -> TaskFailure:
    return TaskFailure(event.task, event.host, cut(f"unreachable: {event.message}"))


def _counts(counts: Mapping[str, Mapping[str, int]]) -> Counts:
    names = ("ok", "changed", "skipped", "failures")
    return Counts(*(int(counts.get(name, {}).get("localhost", 0)) for name in names))


def _read_requeue(wish: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return (seconds from now, None) or (None, POSIX seconds)."""
    at, period = wish.get("at"), wish.get("period")
    if at is not None:
        return None, int(at) / 1000
    if not isinstance(period, str):
        raise ValueError(f"period is {period!r}, expected text such as 30s")  # noqa: TRY004 - one error for every wish
    return parse_duration(period), None


def _go_time(created: str) -> str:
    """Return an ISO time with at most eight digits of fraction and no zeros at its end."""
    head, dot, rest = created.partition(".")
    if not dot:
        return created
    digits, plus, zone = rest.partition("+")
    fraction = digits[:8].rstrip("0")
    return head + (f".{fraction}" if fraction else "") + plus + zone
