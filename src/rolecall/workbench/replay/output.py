"""Replays as a person reads them: a line for each record, and below it what is different today, by task."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from rolecall.runner.record.timeline import diff_lines
from rolecall.workbench.plan.model import TaskName
from rolecall.workbench.replay.results import BadRecord, Difference, Replay, Replays, Verdict

_STYLES: Final = {
    Verdict.SAME: "green",
    Verdict.DIFFERENT: "yellow",
    Verdict.INCOMPLETE: "yellow",
    Verdict.FAILED: "red",
}
_SIGNS: Final = {"+": "green", "-": "red"}
_WITHOUT_TASK: Final = TaskName("")


@dataclass(frozen=True, slots=True)
class Shown:
    """One line, and its style on a terminal."""

    text: str
    style: str = ""


def lines_of(replays: Replays, *, is_summary: bool) -> Iterator[Shown]:
    """Yield the lines for all records; with ``is_summary`` no more than one for each."""
    for each in replays.found:
        if isinstance(each, Replay):
            yield Shown(f"{each.kind} {each.name}: {each.verdict}  ({each.path.name})", _STYLES[each.verdict])
            if not is_summary:
                yield from (Shown(f"  {line.text}", line.style) for line in _details(each))
    yield Shown(total(replays), "bold")


def total(replays: Replays) -> str:
    """Return how many records there are of each result."""
    verdicts = [each.verdict for each in replays.found if isinstance(each, Replay)]
    counts = [(verdicts.count(verdict), str(verdict)) for verdict in Verdict]
    counts.append((sum(isinstance(each, BadRecord) for each in replays.found), "not replayed"))
    number = len(replays.found)
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{number} record{'' if number == 1 else 's'}: {told or 'nothing to replay'}"


def _details(replay: Replay) -> Iterator[Shown]:
    if replay.verdict is Verdict.SAME and not replay.questions:
        return
    for task, group in groupby(replay.differences, key=lambda each: each.task):
        yield Shown(f"TASK {task.name}", "bold")
        if task.place:
            yield Shown(f"  {task.place}", "dim")
        for difference in group:
            yield from _difference(difference)
    if replay.status:
        yield Shown("the end of the reconcile", "bold")
        yield from _diff(*replay.status)
    yield from _endings(replay)
    for question in replay.questions:
        asker = f" (asked by {question.task.name})" if question.task != _WITHOUT_TASK else ""
        yield Shown(f"the record does not tell, so it counts as not there: {question.text}{asker}")
    yield from (Shown(f"note: {note}") for note in replay.notes)


def _difference(difference: Difference) -> Iterator[Shown]:
    mark = ", secret-derived" if difference.is_secret_derived else ""
    yield Shown(f"  {difference.change}{mark}: {difference.method} {difference.target}")
    yield from _diff(difference.before, difference.after)


def _diff(before: Any, after: Any) -> Iterator[Shown]:
    for line in diff_lines(before, after):
        yield Shown(f"    {line}", _SIGNS.get(line[:1], ""))


def _endings(replay: Replay) -> Iterator[Shown]:
    if replay.stopped_at:
        yield Shown(f"complete up to task {replay.stopped_at}")
    for when, failure in (("recorded", replay.recorded_failure), ("today", replay.failure)):
        if failure:
            first, *rest = failure.splitlines()
            yield Shown(f"failed ({when}): {first}", "red")
            yield from (Shown(f"  {line}", "red") for line in rest)
    if replay.recorded_failure and not replay.failure and not replay.stopped_at:
        yield Shown("today the role does not fail", "green")
    if replay.not_reached:
        yield Shown(f"not reached: {replay.not_reached} later writes of the record")


def document_of(replays: Replays) -> dict[str, Any]:
    """Return the same for programs, as a JSON document."""
    return {"exitCode": replays.exit_code, "records": [_to_json(each) for each in replays.found]}


def _to_json(replay: Replay | BadRecord) -> dict[str, Any]:
    if isinstance(replay, BadRecord):
        return {"file": str(replay.path), "result": "not replayed", "reason": replay.text, "exitCode": replay.code}
    status = replay.status or (None, None)
    return {
        "file": str(replay.path),
        "kind": replay.kind,
        "object": replay.name,
        "result": str(replay.verdict),
        "seconds": round(replay.seconds, 3),
        "differences": [_difference_to_json(each) for each in replay.differences],
        "end": None if replay.status is None else {"before": status[0], "after": status[1]},
        "failure": replay.failure,
        "recordedFailure": replay.recorded_failure,
        "stoppedAt": replay.stopped_at,
        "notReached": replay.not_reached,
        "questions": [
            {"task": each.task.name, "place": each.task.place, "text": each.text} for each in replay.questions
        ],
        "notes": list(replay.notes),
    }


def _difference_to_json(difference: Difference) -> dict[str, Any]:
    return {
        "change": str(difference.change),
        "task": difference.task.name,
        "place": difference.task.place,
        "method": difference.method,
        "target": difference.target,
        "before": difference.before,
        "after": difference.after,
        "secretDerived": difference.is_secret_derived,
    }
