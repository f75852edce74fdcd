"""The outcome of a run: whether it succeeded, failed, or was interrupted, and what it reported.

The status of the object, the record, the trace, the Event, the metric, and the log all read the same ``Outcome``.

An ``OutcomeBuilder`` receives the events one by one and, last, how the process ended. An ignored or rescued failure
doesn't count, an unreachable host does, and a play without a recap failed for the reason that Ansible printed. The
builder keeps a few lines of output, never all events.

``explain_memory`` adds the reason that Ansible often omits: a ``MemoryError`` has no text. So a failure without a
reason is judged by the size of the largest process. A run that succeeded before it could be killed has succeeded.
"""

import itertools
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from rolecall.kube.errors import plain_errors
from rolecall.kube.quantities import format_bytes, parse_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.runs.events import RunEvent, cut

Status = Literal["successful", "failed", "timeout", "canceled", "error", "unknown"]

_NO_HOSTS = ("playbook_on_no_hosts_matched", "playbook_on_no_hosts_remaining")
_ERROR_LINE = re.compile(r"^(?:\[ERROR\]:|ERROR!)\s*(.*)")
_ORIGIN_LINE = re.compile(r"^Origin:\s*(.*)")
_TAIL_LINES = 60

_SUSPICIOUS_SHARE = 0.4
"""A process fails long before it reaches its limit: growing often requires as much memory again."""

_REPORTS_MEMORY = re.compile(r"MemoryError|[Oo]ut of memory|[Cc]annot allocate")
_REPORTS_NOTHING = re.compile(
    r"(?:Error rendering template\.|[Ff]ailed\.|probably a bug:?|without a message|ended early|exit code -?\d+.*)\s*\Z"
)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One reason why a run failed; ``task`` is empty if no task failed."""

    task: str
    host: str
    message: str
    task_id: str = ""

    def __str__(self) -> str:
        """Return one line for a condition or the log: the task, the host unless it is localhost, the message."""
        if not self.task:
            return cut(self.message)
        host = "" if self.host in ("", "localhost") else f" on {self.host}"
        return cut(f"Task {self.task!r}{host}: {self.message}")


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of the play recap for localhost."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """The values for the status of an object that the paths of its watch find after a run.

    ``mapped`` are fields of the status. ``unready`` is why an object is not ready after a success; None if the watch
    has no ``ready``, empty if the object is ready. ``reason`` and ``message`` are those of ``Ready``, and ``invalid``
    names the ones that can't be used. ``remarks`` are added to the message of a success.
    """

    mapped: Mapping[str, Any] = field(default_factory=dict)
    unready: str | None = None
    reason: str = ""
    message: str = ""
    invalid: Sequence[str] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run; its status is ``unknown`` if there was none, or until it has ended.

    ``completion`` is the time of the recap as the Go runner writes it. At most one of ``requeue_after_seconds`` and
    ``requeue_at`` (POSIX time in seconds) is set: the requeue that the role requested. ``written`` are the conditions
    that the role has set, see ``RunEvent``. ``stats`` has the values of ``set_stats``. ``peak_memory_bytes`` is the
    most private memory that a process of the run had, 0 if unknown. ``limit`` is the limit that ended the run: time,
    memory, disk, or empty. A failure ``is_final`` if the object is its cause.
    ``prune`` has the options of the task ``rolecall.util.prune`` if the run has reached it, and ``doubts`` are reasons
    why a successful run may have left something out. ``task_files`` are the files of its tasks, as Ansible names them.
    ``left_out`` are paths of the spec that didn't become variables, because the role doesn't declare them.
    ``finalizer`` is the one that the run was for, empty for an ordinary run. ``reported`` is empty until the object has
    been read again.
    """

    status: Status = "unknown"
    rc: int | None = None
    failures: tuple[TaskFailure, ...] = ()
    counts: Counts = Counts()
    completion: str = ""
    requeue_after_seconds: float | None = None
    requeue_at: float | None = None
    written: tuple[Mapping[str, Any], ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    duration_seconds: float = 0.0
    peak_memory_bytes: int = 0
    limit: str = ""
    is_final: bool = False
    prune: Mapping[str, Any] | None = None
    doubts: tuple[str, ...] = ()
    task_files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    finalizer: str = ""
    reported: Reported = Reported()

    @classmethod
    def of_failure(cls, message: str, status: Status = "error", *, is_final: bool = False) -> Self:
        """Return the outcome of a run that failed without a task, for example because it never started."""
        return cls(status, failures=(TaskFailure("", "", message),), is_final=is_final)

    @property
    def is_known(self) -> bool:
        """Whether there was a run, and it has ended."""
        return self.status != "unknown"

    @property
    def is_successful(self) -> bool:
        """Whether every task of the role succeeded."""
        return self.status == "successful"

    @property
    def is_interrupted(self) -> bool:
        """Whether the operator stopped the run before its end: neither a success nor a failure."""
        return self.status == "canceled"

    @property
    def message(self) -> str:
        """All failures, one per line, in order; empty after a success."""
        return cut("\n".join(str(failure) for failure in self.failures))

    @property
    def failure(self) -> str | None:
        """Why the run failed, with its finalizer; None after a success and without a run."""
        if self.is_successful or not self.is_known:
            return None
        message = self.message or "the run failed without a message"
        return f"Finalizer {self.finalizer}: {message}" if self.finalizer else message

    @property
    def requests_requeue(self) -> bool:
        """Whether the role requested the next run, because there is more to do."""
        return self.requeue_at is not None or self.requeue_after_seconds is not None

    def conditions_of(self, obj: RawObject) -> tuple[Mapping[str, Any], ...]:
        """Return the conditions that the run has written into the status of an object."""
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        target = (gvk.group, gvk.kind, key.namespace, key.name)
        return tuple(
            condition
            for each in self.written
            if (GVK.of(each["api_version"], "").group, each["kind"], each["namespace"], each["name"]) == target
            for condition in each["conditions"]
        )


NO_RUN = Outcome()


class OutcomeBuilder:
    """Collects the events of one run; ``finish`` returns its outcome.

    With ``unreachable_ok``, an unreachable host and a play without hosts are not failures.
    """

    def __init__(self, *, unreachable_ok: bool = False) -> None:
        self._unreachable_ok = unreachable_ok
        self._failed: list[RunEvent] = []
        self._last_failed: dict[str, RunEvent] = {}
        self._unreachable: list[RunEvent] = []
        self._items: dict[tuple[str, str], str] = {}
        self._recap = RunEvent()  # without a name until there is one
        self._has_skipped_play = False
        self._task = ""
        self._last_created = ""
        self._requeue: tuple[float | None, float | None] = (None, None)
        self._requeue_failure: TaskFailure | None = None
        self._written: list[Mapping[str, Any]] = []
        self._prune: Mapping[str, Any] | None = None
        self._doubts: dict[str, None] = {}
        self._jobs: dict[str, str] = {}
        self._task_files: set[str] = set()
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def add(self, event: RunEvent) -> None:
        """Add the next event, in the order in which Ansible emitted them."""
        self._last_created = event.created or self._last_created
        self._tail.extend(event.stdout.splitlines())
        match event.name:
            case "playbook_on_task_start" | "playbook_on_handler_task_start":
                self._task = event.task
                self._task_files.add(event.task_path.rpartition(":")[0])
            case "runner_on_start":
                self._last_failed.pop(event.host, None)
            case "runner_item_on_failed":
                self._items.setdefault((event.task_id, event.host), event.message)
            case "runner_on_failed" if not event.ignored:
                self._failed.append(event)
                self._last_failed[event.host] = event
            case "runner_on_unreachable":
                self._unreachable.append(event)
            case "playbook_on_stats":
                self._recap, self._task = event, ""
            case name if name in _NO_HOSTS:
                self._has_skipped_play = True
        self._doubts.update(dict.fromkeys(_doubts_about(event)))
        self._follow_job(event)
        self._prune = event.prune or self._prune
        self._written.extend(filter(None, [event.written]))
        if event.requeue is not None:
            try:
                self._requeue = _read_requeue(event.requeue)
            except (TypeError, ValueError, OverflowError) as error:
                reason = "its result is hidden by no_log" if event.censored else str(error)
                message = f"invalid requeue time: {reason}"
                self._requeue_failure = TaskFailure(event.task, event.host, message)

    def _follow_job(self, event: RunEvent) -> None:
        if event.job_ended:
            self._jobs.pop(event.job, None)
        elif event.job:
            self._jobs[event.job] = f"the background job of task {event.task!r} had not ended"

    def doubt(self, reason: str) -> None:
        """Add a reason why the run may have left something out."""
        self._doubts[reason] = None

    def finish(self, ending: Outcome) -> Outcome:
        """Return the outcome of the run.

        ``ending`` is what is known without its events; a failure in it is why the operator or a limit stopped the run.
        """
        failures = self._failures(ending)
        status: Status = ending.status if failures else "successful"
        if failures and status == "successful":
            status = "failed"
        after, at = self._requeue
        names = ("ok", "changed", "skipped", "failures")
        return replace(
            ending,
            status=status,
            failures=tuple(failures),
            counts=Counts(*(int(self._recap.counts.get(name, {}).get("localhost", 0)) for name in names)),
            completion=_go_time(self._recap.created or self._last_created),
            requeue_after_seconds=after,
            requeue_at=at,
            written=tuple(self._written),
            stats=self._recap.stats,
            prune=self._prune,
            doubts=(*self._doubts, *self._jobs.values()),
            task_files=tuple(sorted(filter(None, self._task_files))),
            limit=ending.limit if failures else "",
        )

    def _failures(self, ending: Outcome) -> list[TaskFailure]:
        """Return the failures of tasks and hosts, or else the failure of the run as a whole, if it has one."""
        failures = [
            TaskFailure(
                event.task,
                event.host,
                self._items.get((event.task_id, event.host)) or event.message or "failed without a message",
                event.task_id,
            )
            for event in self._unrescued()
        ]
        if not self._unreachable_ok:
            failures += [
                TaskFailure(event.task, event.host, cut(f"unreachable: {event.message}"))
                for event in self._unreachable
                if not self._recap.name or event.host in self._recap.counts.get("dark", {})
            ]
        if self._requeue_failure:
            failures.append(self._requeue_failure)
        if self._recap.message:
            failures.append(TaskFailure("", "", self._recap.message))
        failures += [TaskFailure(self._task, "", cut(each.message)) for each in ending.failures]
        if failures:
            return failures
        counts = self._recap.counts
        if self._unreachable_ok and ending.status == "failed" and counts.get("dark"):
            return []
        if not self._recap.name or ending.status != "successful":
            return [TaskFailure(self._task, "", self._printed_reason(ending))]
        if self._has_skipped_play and not counts.get("processed") and not self._unreachable_ok:
            return [TaskFailure("", "", "no host of the inventory matches the play, so nothing was done")]
        return []

    def _unrescued(self) -> list[RunEvent]:
        """Return the failures that were not rescued.

        The recap counts a host's rescued and its final failures separately. A host continues after a rescue and stops
        after a final failure, so its final failures are its last. Without a recap a host that continued was rescued.
        """
        if not self._recap.name:
            return list(self._last_failed.values())
        remaining = Counter({host: int(count) for host, count in self._recap.counts.get("failures", {}).items()})
        final: list[RunEvent] = []
        for event in reversed(self._failed):
            if remaining[event.host] > 0:
                remaining[event.host] -= 1
                final.append(event)
        return final[::-1]

    def _printed_reason(self, ending: Outcome) -> str:
        """Return Ansible's last error, with its position in parentheses, or else the end of its output."""
        lines = list(self._tail)
        errors = [number for number, line in enumerate(lines) if _ERROR_LINE.match(line)]
        if not errors:
            printed = " | ".join(line.strip() for line in lines[-3:] if line.strip())
            ended = (
                "the play ended early" if ending.rc is None else f"ansible-playbook ended with exit code {ending.rc}"
            )
            return cut(f"{ended}: {plain_errors(printed)}" if printed else f"{ended} and printed nothing")
        lines = lines[errors[-1] :]
        origin = next((number for number, line in enumerate(lines) if _ORIGIN_LINE.match(line)), len(lines))
        body = itertools.takewhile(str.strip, lines[:origin])
        text = plain_errors(_ERROR_LINE.sub(r"\1", " ".join(line.strip() for line in body)))
        return cut(text + "".join(_ORIGIN_LINE.sub(r" (\1)", line) for line in lines[origin : origin + 1]))


def _doubts_about(event: RunEvent) -> Iterator[str]:
    """Yield why a successful run with this event may have left something out."""
    if event.name == "runner_on_failed":
        yield f"the failure of task {event.task!r} was {'ignored' if event.ignored else 'rescued'}"
    elif event.name == "runner_on_unreachable":
        yield f"the host {event.host} was unreachable"
    elif event.name in _NO_HOSTS:
        yield "a play had no hosts"
    if event.bypass:
        yield f"task {event.task!r} bypasses the credentials of the run with {event.bypass}"


def _read_requeue(request: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return (seconds from now, None) or (None, POSIX seconds)."""
    at, period = request.get("at"), request.get("period")
    if at is not None:
        return None, int(at) / 1000
    if not isinstance(period, str):
        raise ValueError(f"period is {period!r}, expected text such as 30s")  # noqa: TRY004 - one error for all
    return parse_duration(period), None


def _go_time(created: str) -> str:
    """Return an ISO time with at most eight digits of fraction and no trailing zeros."""
    head, dot, rest = created.partition(".")
    if not dot:
        return created
    digits, plus, zone = rest.partition("+")
    fraction = digits[:8].rstrip("0")
    return head + (f".{fraction}" if fraction else "") + plus + zone


@dataclass(frozen=True, slots=True)
class MemoryKill:
    """A process was killed because the container was full: by the operator, or possibly of this run by the kernel."""

    reason: str
    by_kernel: bool = False


def explain_memory(outcome: Outcome, limit_bytes: int, kill: MemoryKill | None) -> Outcome:
    """Return the outcome with the memory shortage as the reason of a failure, if there was one.

    Each process could have ``limit_bytes`` (0: no limit).
    """
    if outcome.is_successful:
        return outcome
    if kill and not kill.by_kernel:  # other failures are consequences; only the task is worth keeping
        task = outcome.failures[-1].task if outcome.failures else ""
        return replace(outcome, failures=(TaskFailure(task, "", cut(kill.reason)),), limit="memory")
    text, failures = "", outcome.failures[-1:]
    limit, peak = format_bytes(limit_bytes), format_bytes(outcome.peak_memory_bytes)
    advice = "let the role process less at a time, or raise --run-memory-limit"
    is_large = outcome.peak_memory_bytes >= limit_bytes * _SUSPICIOUS_SHARE
    if kill:
        text = kill.reason
    elif limit_bytes > 0:
        if reported := tuple(failure for failure in outcome.failures if _REPORTS_MEMORY.search(failure.message)):
            text, failures = f"out of memory: a process of the run needed more than {limit} ({advice})", reported
        elif is_large and _REPORTS_NOTHING.search(outcome.message):
            text = f"probably out of memory: a process of the run had {peak} and may have {limit} ({advice})"
    if not text:
        return outcome
    explained = (
        replace(each, message=cut(f"{text}: {each.message}")) if each in failures else each for each in outcome.failures
    )
    return replace(outcome, failures=tuple(explained), limit="memory")
