"""What a replay says about its record: the same, other writes, complete up to a task, or failed.

A run that failed is the same if the role fails today at the same task for the same reason.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rolecall.runner.reconcile.readiness import without_ours
from rolecall.runner.reconcile.status import says_the_same
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.reader import StoredRecord
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.workbench.plan.shown_texts import SENSITIVE
from rolecall.workbench.replay.comparison import Compared, compare
from rolecall.workbench.replay.equality import Equality
from rolecall.workbench.replay.questions import open_questions
from rolecall.workbench.replay.record_source import RecordSource
from rolecall.workbench.replay.results import Difference, Replay, Verdict
from rolecall.workbench.replay.run_lines import RunLines
from rolecall.workbench.replay.writes import writes_of

_ANEW: Final = re.compile(
    r"0x[0-9a-f]{6,}|(?:/[\w.+-]+)*/(?:ansible[-_.]tmp|tmp)[\w.+-]*(?:/[\w.+-]+)*|127\.0\.0\.1:\d+"
)
"""What messages have anew in each run: addresses in memory, temporary files, the port of the proxy."""


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """A run in the shadow, for which ``source`` stood in; ``stopped_at`` says up to which task it is complete.

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
    hide = _hider(replayed.secrets)
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


def _hider(secrets: tuple[str, ...]) -> Callable[[str], str]:
    mask = Mask()
    for text in secrets:
        mask.add(text)
    return mask.hider(SENSITIVE)


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
