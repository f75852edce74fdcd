"""Compares the writes of a recorded run with those that the role does today.

Writes are equal if method, target and body are, apart from what every run gets anew (``equality``). They are compared
in their order; one that has only moved is told as such.

What a replay says about its record: the same, other writes, complete up to a task, or failed.

A run that failed is the same if the role fails today at the same task for the same reason.

What a role has asked in a sandbox and the record does not tell.

The sandbox answered that such an object is not there, and lists without it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any, Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.reconcile.status import says_the_same, without_ours
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.workbench.plan.model import TaskName
from rolecall.workbench.plan.shown_changes import SENSITIVE
from rolecall.workbench.replay.equality import Equality
from rolecall.workbench.replay.recorded_cluster import RecordSource, query_of
from rolecall.workbench.replay.results import Change, Difference, Question, Replay, Verdict
from rolecall.workbench.replay.writes import UNKNOWN_TASK, RunLines, RunWrites, Write, writes_of


@dataclass(slots=True)
class Compared:
    """What differs, and how many writes of the record came after everything that the other run did."""

    equality: Equality
    differences: list[Difference] = field(default_factory=list)
    not_reached: int = 0
    notes: list[str] = field(default_factory=list)


def compare(record: RunWrites, run: RunWrites, *, has_ended_early: bool) -> Compared:
    """Compare two runs; with ``has_ended_early`` what the record has beyond the end of the other is only counted."""
    return _Comparison(record, run).compared(has_ended_early=has_ended_early)


class _Comparison:
    def __init__(self, record: RunWrites, run: RunWrites) -> None:
        self._equality = Equality(record, run)
        self._record, self._run = record.writes, run.writes

    def compared(self, *, has_ended_early: bool) -> Compared:
        found = Compared(self._equality)
        before = [self._key(each, is_recorded=True) for each in self._record]
        after = [self._key(each, is_recorded=False) for each in self._run]
        missing: list[Write] = []
        additional: list[Write] = []
        for tag, *places in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            ours, theirs = self._record[places[0] : places[1]], self._run[places[2] : places[3]]
            if tag == "equal":
                for pair in zip(ours, theirs, strict=True):
                    found.differences += self._pair(*pair)
                    found.notes += _other_answer(*pair)
                continue
            if has_ended_early and places[1] == len(before):
                found.not_reached = len(ours)
                ours = ()
            missing += ours
            additional += theirs
        found.differences += self._unpaired(missing, additional)
        return found

    def _key(self, write: Write, *, is_recorded: bool) -> tuple[str, str]:
        """Return by what writes of the two runs are brought together: the method, and what it is for."""
        name = write.body.get("metadata") if write.method == "POST" and isinstance(write.body, dict) else None
        name = name.get("name") or name.get("generateName") if isinstance(name, dict) else None
        return write.method, self._equality.normal(f"{write.path} {name or ''}", is_recorded=is_recorded)

    def _pair(self, before: Write, after: Write) -> Iterator[Difference]:
        one = _shown(before)
        two = self._equality.unified(one, _shown(after), is_hidden=before.is_hidden)
        if before.is_secret:
            two = self._equality.with_hidden_values(one, two)
        if one != two:
            yield _difference(Change.CHANGED, before, after, one, two)

    def _unpaired(self, missing: list[Write], additional: list[Write]) -> Iterator[Difference]:
        left = list(additional)
        for before in missing:
            moved = next((each for each in left if self._are_equal(before, each)), None)
            if moved is None:
                yield _difference(Change.MISSING, before, None, _shown(before), None)
            else:
                left.remove(moved)
                yield _difference(Change.MOVED, before, moved, _shown(before), _shown(before))
        for after in left:
            yield _difference(Change.ADDITIONAL, None, after, None, _shown(after))

    def _are_equal(self, before: Write, after: Write) -> bool:
        if self._key(before, is_recorded=True) != self._key(after, is_recorded=False):
            return False
        return not list(self._pair(before, after))


def _difference(change: Change, before: Write | None, after: Write | None, one: Any, two: Any) -> Difference:
    write = after or before
    assert write is not None  # noqa: S101 - one of them is given
    follows_secret = any(each is not None and each.follows_secret for each in (before, after))
    return Difference(change, write.task, write.method, (before or write).target, one, two, follows_secret)


def _shown(write: Write) -> dict[str, Any]:
    """Return what of a write is compared."""
    query: dict[str, list[str]] = {}
    for name, value in write.query:
        query.setdefault(name, []).append(value)
    parts = {"query": query, "contentType": write.content_type, "body": write.body}
    return {name: value for name, value in parts.items() if value not in ("", None, {})}


def _other_answer(before: Write, after: Write) -> Iterator[str]:
    """Say that a write was refused in the record or today, but not in both."""
    if before.is_accepted == after.is_accepted:
        return
    then, now = ("refused" if not each.is_accepted else "accepted" for each in (before, after))
    yield (
        f"{before.method} {before.target} was {then} with {before.status} in the record, and is {now} with"
        f" {after.status} in the sandbox"
    )


_NOT_FOUND: Final = 404
_UNRECORDED: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups of objects that are not stored: there is nothing to know of them."""


def open_questions(run: RunLines, source: RecordSource) -> tuple[Question, ...]:
    """Return the questions of a run that its source could not answer, each once."""
    tasks = {(task["task"], task["host"]): TaskName(task["name"], task["place"]) for task in run.tasks}
    found: dict[Question, None] = {}
    for exchange in run.exchanges:
        if exchange.get("resource") and exchange["group"] not in _UNRECORDED:
            for text in _open_question(exchange, source):
                task = tasks.get((exchange["task"], exchange["host"]), UNKNOWN_TASK)
                found[Question(task, text)] = None
    return tuple(found)


def _open_question(exchange: Line, source: RecordSource) -> Iterator[str]:
    group, plural, namespace = exchange["group"], exchange["resource"], exchange["namespace"]
    where = f" in namespace {namespace}" if namespace else ""
    what = f"{plural}.{group}" if group else plural
    if exchange["verb"] in ("list", "watch", "deletecollection") and not exchange["name"]:
        query = query_of(exchange)
        if not source.is_listed(query):
            selectors = " and ".join(each for each in (query.labels, query.fields) if each)
            yield f"the list of {what}{where}" + (f" with {selectors}" if selectors else "")
    elif exchange["status"] == _NOT_FOUND and exchange["name"]:
        key = ObjectKey("" if plural == "namespaces" else namespace, exchange["name"])
        if not source.is_known(group, plural, key):
            yield f"{what} {exchange['name']}{where}"


_ANEW: Final = re.compile(
    r"0x[0-9a-f]{6,}|(?:/[\w.+-]+)*/(?:ansible[-_.]tmp|tmp)[\w.+-]*(?:/[\w.+-]+)*|127\.0\.0\.1:\d+"
)
"""What messages have anew in each run: addresses in memory, temporary files, the port of the proxy."""


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """A run in the sandbox, for which ``source`` stood in; ``stopped_at`` says up to which task it is complete.

    ``secrets`` are values that must not be shown.
    """

    record: RunRecord
    source: RecordSource
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    stopped_at: str = ""
    secrets: tuple[str, ...] = ()


def outcome_of(record: StoredRecord, replayed: ReplayedRun) -> Replay:
    """Return what came of a record."""
    run = RunLines.of_run(replayed.record)
    ending = replayed.record.ending or Ending("failed")
    failures = () if ending.summary is None else tuple(map(str, ending.summary.failures))
    failure = _failure_of(ending.outcome, failures)
    recorded = _failure_of(record.end["outcome"], record.end["failures"])
    if replayed.stopped_at:  # the role did not go on from there, so neither failure tells anything
        failure = recorded = ""
    has_failed_anew = bool(failure) and not recorded
    compared = compare(
        writes_of(RunLines.of_record(record)),
        writes_of(run),
        has_ended_early=bool(replayed.stopped_at) or has_failed_anew,
    )
    is_same_failure = bool(failure) == bool(recorded) and _is_same_message(compared.equality, recorded, failure)
    status = None if replayed.stopped_at else _status(compared.equality, record, ending)
    hide = _redactor(replayed.secrets)
    return Replay(
        path=record.path,
        kind=record.kind,
        name=record.name,
        verdict=_verdict(compared, replayed.stopped_at, failure, is_same=is_same_failure and status is None),
        differences=tuple(_hidden_in(each, hide) for each in compared.differences),
        status=None if status is None else (_hidden(status[0], hide), _hidden(status[1], hide)),
        failure="" if is_same_failure else hide(failure),
        recorded_failure="" if is_same_failure else recorded,
        stopped_at=replayed.stopped_at,
        not_reached=compared.not_reached,
        questions=open_questions(run, replayed.source),
        notes=(*compared.notes, *replayed.source.assumptions, *replayed.notes),
        seconds=replayed.seconds,
    )


def _verdict(compared: Compared, stopped_at: str, failure: str, *, is_same: bool) -> Verdict:
    if stopped_at:
        return Verdict.INCOMPLETE
    if is_same and not compared.differences:
        return Verdict.SAME
    return Verdict.FAILED if failure else Verdict.DIFFERENT


def _redactor(secrets: tuple[str, ...]) -> Callable[[str], str]:
    mask = Mask()
    for text in secrets:
        mask.add(text)
    return mask.redactor(SENSITIVE)


def _hidden_in(difference: Difference, hide: Callable[[str], str]) -> Difference:
    return replace(difference, before=_hidden(difference.before, hide), after=_hidden(difference.after, hide))


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """Return a value without secrets; what is the same before and after stays the same."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {key: _hidden(inner, hide) for key, inner in value.items()}
    return [_hidden(inner, hide) for inner in value] if isinstance(value, list | tuple) else value


def _failure_of(outcome: str, failures: Sequence[str]) -> str:
    if outcome == "succeeded":
        return ""
    return "\n".join(failures) or "the reconcile failed; its status says why"


def _is_same_message(equality: Equality, before: str, after: str) -> bool:
    return equality.are_same_texts(_ANEW.sub("…", before), _ANEW.sub("…", after))


def _status(equality: Equality, record: StoredRecord, ending: Ending) -> tuple[Any, Any] | None:
    """Return the status of the record and that of today if they differ.

    ``Ready`` and its like are no difference: they follow from the outcome, the time and the watch.
    """
    recorded = record.end["status"]
    before = {"status": recorded and without_ours(recorded), "requeueAfterSeconds": record.end["requeueAfterSeconds"]}
    status = None if ending.status is None else without_ours(dict(ending.status))
    found = equality.unified_status(before["status"], status)
    if before["status"] and found and says_the_same(before["status"], found):
        found = before["status"]  # counts of tasks are no difference
    unified = {"status": found, "requeueAfterSeconds": ending.requeue_after_seconds}
    return None if unified == before else (before, unified)
