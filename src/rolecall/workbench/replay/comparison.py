"""Compares the writes of a recorded run with the role's current writes, and decides on the verdict about the record.

Writes are equal if method, target and body are equal except for values that differ in every run (see ``equality``).
They are compared in their order; a write that has only moved is reported as moved. A run that failed is the same if the
role fails at the same task for the same reason. Reads that the record doesn't show are reported: the sandbox treats
their objects as missing.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rolecall.kube.errors import plain_errors
from rolecall.kube.json_values import with_texts
from rolecall.kube.references import ObjectKey
from rolecall.runner.reconcile.status import (
    NOT_READY_YET,
    READY,
    RUN_SUCCEEDED,
    Status,
    condition_of,
    is_equivalent,
    with_own_reason,
    without_ready_conditions,
)
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.workbench.comparison.masks import redactor
from rolecall.workbench.comparison.reports import ExitCode, TaskName, worst_of
from rolecall.workbench.plan.reconciles import NO_REASON
from rolecall.workbench.replay.equality import Equality
from rolecall.workbench.replay.recorded_cluster import RecordSource, query_of
from rolecall.workbench.replay.writes import UNKNOWN_TASK, RunLines, RunWrites, Write, writes_of

_NOT_FOUND: Final = 404
_NOT_STORED: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_CHANGES_IN_MESSAGES: Final = re.compile(
    r"0x[0-9a-f]{6,}|(?:/[\w.+-]+)*/(?:ansible[-_.]tmp|tmp)[\w.+-]*(?:/[\w.+-]+)*|127\.0\.0\.1:\d+"
)
"""Parts of messages that differ in every run: addresses in memory, temporary files, the port of the proxy."""


class Verdict(StrEnum):
    """The result of a replay, compared with its record."""

    SAME = "same"
    DIFFERENT = "other writes"
    INCOMPLETE = "complete up to a task"
    FAILED = "failed"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for it."""
        return ExitCode[self.name]


class Change(StrEnum):
    """How a write differs."""

    CHANGED = "changed"
    MISSING = "missing"
    ADDITIONAL = "additional"
    MOVED = "in another order"


@dataclass(frozen=True, slots=True)
class Difference:
    """One write that differs: ``before`` in the record, ``after`` in the replay.

    In ``after`` the values that differ in every run are those of the record. With ``is_secret_derived`` a Secret was
    read before it, whose values are placeholders: they may cause the difference.
    """

    change: Change
    task: TaskName
    method: str
    target: str
    before: Any = None
    after: Any = None
    is_secret_derived: bool = False


@dataclass(frozen=True, slots=True)
class UnrecordedRead:
    """A read of an object or list that the record doesn't show, and that the sandbox treated as missing."""

    task: TaskName
    text: str


@dataclass(frozen=True, slots=True)
class Replay:
    """The result for one record.

    ``status`` has the status of the record and of the replay, None if they are the same. ``failure`` is the failure of
    the replay, ``recorded_failure`` that of the record. ``not_reached`` counts the writes of the record after the end
    of an incomplete replay. ``notes`` are sentences.
    """

    path: Path
    kind: str
    name: str
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    status: tuple[Any, Any] | None = None
    failure: str = ""
    recorded_failure: str = ""
    stopped_at: str = ""
    not_reached: int = 0
    unrecorded: tuple[UnrecordedRead, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be replayed: one line with the reason, and the exit code for it."""

    path: Path
    text: str
    code: int = ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class Replays:
    """The results for all records, in their order."""

    found: tuple[Replay | BadRecord, ...] = ()

    @property
    def exit_code(self) -> int:
        """The code of the first record that cannot be replayed, else the worst one of the others."""
        bad = [each.code for each in self.found if isinstance(each, BadRecord)]
        return bad[0] if bad else worst_of(each.verdict.exit_code for each in self.found if isinstance(each, Replay))


@dataclass(slots=True)
class Compared:
    """The differences between two runs, and how many writes of the record came after the end of the other run."""

    equality: Equality
    differences: list[Difference] = field(default_factory=list)
    not_reached: int = 0
    notes: list[str] = field(default_factory=list)


def compare(record: RunWrites, run: RunWrites, *, has_ended_early: bool) -> Compared:
    """Compare two runs; with ``has_ended_early`` the record's writes beyond the end of the other are only counted."""
    found = Compared(Equality(record, run))
    before = [_counterpart_key(each, found.equality, is_recorded=True) for each in record.writes]
    after = [_counterpart_key(each, found.equality, is_recorded=False) for each in run.writes]
    missing: list[tuple[Write, tuple[str, str]]] = []
    additional: list[tuple[Write, tuple[str, str]]] = []
    for tag, start, end, run_start, run_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            for one, two in zip(record.writes[start:end], run.writes[run_start:run_end], strict=True):
                difference = _difference(one, two, found.equality)
                found.differences += [difference] if difference else []
                found.notes += _other_response(one, two)
            continue
        if has_ended_early and end == len(before):
            found.not_reached = end - start
        else:
            missing += zip(record.writes[start:end], before[start:end], strict=True)
        additional += zip(run.writes[run_start:run_end], after[run_start:run_end], strict=True)
    for one, key in missing:
        moved = next(
            (each for each in additional if each[1] == key and not _difference(one, each[0], found.equality)), None
        )
        if moved is None:
            found.differences.append(_described(Change.MISSING, one, None, _compared_parts(one), None))
        else:
            additional.remove(moved)
            parts = _compared_parts(one)
            found.differences.append(_described(Change.MOVED, one, moved[0], parts, parts))
    found.differences += [_described(Change.ADDITIONAL, None, two, None, _compared_parts(two)) for two, _ in additional]
    return found


def _counterpart_key(write: Write, equality: Equality, *, is_recorded: bool) -> tuple[str, str]:
    """Return the key by which the writes of two runs are paired: the method, and the object."""
    name = write.body.get("metadata") if write.method == "POST" and isinstance(write.body, dict) else None
    name = name.get("name") or name.get("generateName") if isinstance(name, dict) else None
    return write.method, equality.normal(f"{write.path} {name or ''}", is_recorded=is_recorded)


def _difference(before: Write, after: Write, equality: Equality) -> Difference | None:
    """Return how two paired writes differ, None if they are equal."""
    one = _compared_parts(before)
    two = equality.unified(one, _compared_parts(after), is_hidden=before.is_hidden)
    if before.is_secret:
        two = equality.with_hidden_values(one, two)
    return None if one == two else _described(Change.CHANGED, before, after, one, two)


def _described(change: Change, before: Write | None, after: Write | None, one: Any, two: Any) -> Difference:
    write = after or before
    assert write is not None  # noqa: S101 - one of them is given
    follows_secret = any(each is not None and each.follows_secret for each in (before, after))
    return Difference(change, write.task, write.method, (before or write).target, one, two, follows_secret)


def _compared_parts(write: Write) -> dict[str, Any]:
    query: dict[str, list[str]] = {}
    for name, value in write.query:
        query.setdefault(name, []).append(value)
    parts = {"query": query, "contentType": write.content_type, "body": write.body}
    return {name: value for name, value in parts.items() if value not in ("", None, {})}


def _other_response(before: Write, after: Write) -> Iterator[str]:
    """Yield a note if a write was rejected either in the record or in the replay."""
    if before.is_accepted != after.is_accepted:
        then, now = ("accepted" if each.is_accepted else "rejected" for each in (before, after))
        yield (
            f"{before.method} {before.target} was {then} with {before.status} in the record, and is {now} with"
            f" {after.status} in the sandbox"
        )


def unrecorded_reads(run: RunLines, source: RecordSource) -> tuple[UnrecordedRead, ...]:
    """Return the reads of a run that its source could not answer, each once."""
    tasks = run.task_names()
    found: dict[UnrecordedRead, None] = {}
    for exchange in run.exchanges:
        is_stored = exchange.get("resource") and exchange["group"] not in _NOT_STORED
        if is_stored and (text := _unrecorded(exchange, source)):
            found[UnrecordedRead(tasks.get((exchange["task"], exchange["host"]), UNKNOWN_TASK), text)] = None
    return tuple(found)


def _unrecorded(exchange: Line, source: RecordSource) -> str:
    """Return the object or list of a request if the record doesn't show it, else an empty string."""
    group, plural, namespace = exchange["group"], exchange["resource"], exchange["namespace"]
    where = f" in namespace {namespace}" if namespace else ""
    what = f"{plural}.{group}" if group else plural
    if exchange["verb"] in ("list", "watch", "deletecollection") and not exchange["name"]:
        query = query_of(exchange)
        if not source.is_listed(query):
            selectors = " and ".join(each for each in (query.labels, query.fields) if each)
            return f"the list of {what}{where}" + (f" with {selectors}" if selectors else "")
    elif exchange["status"] == _NOT_FOUND and exchange["name"]:
        key = ObjectKey("" if plural == "namespaces" else namespace, exchange["name"])
        if not source.is_known(group, plural, key):
            return f"{what} {exchange['name']}{where}"
    return ""


def replay_of(
    record: StoredRecord,
    run: RunRecord,
    source: RecordSource,
    *,
    stopped_at: str = "",
    secrets: tuple[str, ...] = (),
) -> Replay:
    """Compare a record with a run in the sandbox, for which ``source`` stood in.

    ``stopped_at`` is the task up to which the run is complete; ``secrets`` must not be displayed.
    """
    lines = RunLines.of_run(run)
    ending = run.ending
    failure = "" if ending.outcome == "succeeded" else "\n".join(map(str, ending.run.failures)) or NO_REASON
    recorded = (
        "" if record.end["outcome"] == "succeeded" else plain_errors("\n".join(record.end["failures"])) or NO_REASON
    )
    if stopped_at:  # the role did not continue from there, so the failures can't be compared
        failure = recorded = ""
    is_new_failure = bool(failure) and not recorded
    compared = compare(
        writes_of(RunLines.of_record(record)), writes_of(lines), has_ended_early=bool(stopped_at) or is_new_failure
    )
    is_same_failure = bool(failure) == bool(recorded) and compared.equality.are_same_texts(
        _CHANGES_IN_MESSAGES.sub("…", recorded), _CHANGES_IN_MESSAGES.sub("…", failure)
    )
    status = None if stopped_at else _status(compared.equality, record, ending)
    if stopped_at:
        verdict = Verdict.INCOMPLETE
    elif is_same_failure and status is None and not compared.differences:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.FAILED if failure else Verdict.DIFFERENT
    redact = redactor(secrets)
    return Replay(
        path=record.path,
        kind=record.kind,
        name=record.name,
        verdict=verdict,
        differences=tuple(
            replace(each, before=_redacted(each.before, redact), after=_redacted(each.after, redact))
            for each in compared.differences
        ),
        status=None if status is None else (_redacted(status[0], redact), _redacted(status[1], redact)),
        failure="" if is_same_failure else redact(failure),
        recorded_failure="" if is_same_failure else recorded,
        stopped_at=stopped_at,
        not_reached=compared.not_reached,
        unrecorded=unrecorded_reads(lines, source),
        notes=(*compared.notes, *source.assumptions),
    )


def _redacted(parts: dict[str, Any] | None, redact: Callable[[str], str]) -> dict[str, Any] | None:
    """Return the parts of a write or status without secrets; values that were equal before stay equal."""
    return None if parts is None else {name: with_texts(value, redact, with_keys=True) for name, value in parts.items()}


def _status(equality: Equality, record: StoredRecord, ending: Ending) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the status of the record and of the replay if they differ.

    ``Ready`` and similar conditions count only if both runs succeeded: then they follow from the values that the run
    reported. Otherwise they follow from the time too, and a record may be of an operator that doesn't write them.
    """
    recorded, replayed = record.end["status"], None if ending.status is None else dict(ending.status)
    if not (_has_readiness(recorded) and _has_readiness(replayed)):
        recorded, replayed = (each and without_ready_conditions(each) for each in (recorded, replayed))
    before = {"status": recorded, "requeueAfterSeconds": record.end["requeueAfterSeconds"]}
    found = equality.unified_status(recorded, replayed)
    if recorded and found and is_equivalent(recorded, found):
        found = recorded  # counts of tasks don't matter
    unified = {"status": found, "requeueAfterSeconds": ending.requeue_after_seconds}
    return None if unified == before else (before, unified)


def _has_readiness(status: Status | None) -> bool:
    """Return whether the operator's ``Ready`` reports if an object is ready after a success."""
    return (condition_of(with_own_reason(status or {}), READY) or {}).get("reason") in (RUN_SUCCEEDED, NOT_READY_YET)
