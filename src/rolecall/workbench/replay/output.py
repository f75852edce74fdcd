"""Replays as text and as a JSON document: the verdict for each record, then the differences by task."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from rolecall.workbench.comparison.reports import Line, TaskName, counted, diff, paragraph
from rolecall.workbench.replay.comparison import BadRecord, Replay, Replays, Verdict

_STYLES: Final = {
    Verdict.SAME: "green",
    Verdict.DIFFERENT: "yellow",
    Verdict.INCOMPLETE: "yellow",
    Verdict.FAILED: "red",
}
_WITHOUT_TASK: Final = TaskName("")


def lines_of(replays: Replays, *, is_summary: bool) -> Iterator[Line]:
    """Yield the lines for all records; with ``is_summary`` only one for each."""
    for each in replays.found:
        if isinstance(each, Replay):
            yield Line(f"{each.kind} {each.name}: {each.verdict}  ({each.path.name})", _STYLES[each.verdict])
            if not is_summary:
                yield from (replace(line, text=f"  {line.text}") for line in _details(each))
    yield Line(total(replays), "bold")


def total(replays: Replays) -> str:
    """Return the number of records with each verdict."""
    verdicts = [each.verdict for each in replays.found if isinstance(each, Replay)]
    counts = [(verdicts.count(verdict), str(verdict)) for verdict in Verdict]
    counts.append((len(replays.found) - len(verdicts), "not replayed"))
    shown = ", ".join(f"{count} {name}" for count, name in counts if count)
    return f"{counted(len(replays.found), 'record')}: {shown or 'nothing to replay'}"


def _details(replay: Replay) -> Iterator[Line]:
    if replay.verdict is Verdict.SAME and not replay.unrecorded:
        return
    for task, group in groupby(replay.differences, key=lambda each: each.task):
        yield Line(f"TASK {task.name}", "bold")
        if task.location:
            yield Line(f"  {task.location}", "dim")
        for each in group:
            mark = ", secret-derived" if each.is_secret_derived else ""
            yield Line(f"  {each.change}{mark}: {each.method} {each.target}")
            yield from diff(each.before, each.after, " " * 4)
    yield from _end(replay)
    for read in replay.unrecorded:
        task = f" (read by {read.task.name})" if read.task != _WITHOUT_TASK else ""
        yield Line(f"not in the record, assumed to be missing: {read.text}{task}")
    yield from (Line(f"note: {note}") for note in replay.notes)


def _end(replay: Replay) -> Iterator[Line]:
    if replay.status:
        yield Line("the end of the reconcile", "bold")
        yield from diff(*replay.status, " " * 4)
    if replay.stopped_at:
        yield Line(f"complete up to task {replay.stopped_at}")
    for when, failure in (("recorded", replay.recorded_failure), ("today", replay.failure)):
        if failure:
            yield from paragraph(f"failed ({when}): ", failure, "red")
    if replay.recorded_failure and not replay.failure and not replay.stopped_at:
        yield Line("today the role does not fail", "green")
    if replay.not_reached:
        yield Line(f"not reached: {counted(replay.not_reached, 'later write')} of the record")


def document_of(replays: Replays) -> dict[str, Any]:
    """Return the replays as a JSON document."""
    return {"exitCode": replays.exit_code, "records": [_to_json(each) for each in replays.found]}


def _to_json(replay: Replay | BadRecord) -> dict[str, Any]:
    if isinstance(replay, BadRecord):
        return {"file": str(replay.path), "result": "not replayed", "reason": replay.text, "exitCode": replay.code}
    status = replay.status and {"before": replay.status[0], "after": replay.status[1]}
    return {
        "file": str(replay.path),
        "kind": replay.kind,
        "object": replay.name,
        "result": str(replay.verdict),
        "seconds": round(replay.seconds, 3),
        "differences": [
            {
                "change": str(each.change),
                "task": each.task.name,
                "place": each.task.location,
                "method": each.method,
                "target": each.target,
                "before": each.before,
                "after": each.after,
                "secretDerived": each.is_secret_derived,
            }
            for each in replay.differences
        ],
        "end": status,
        "failure": replay.failure,
        "recordedFailure": replay.recorded_failure,
        "stoppedAt": replay.stopped_at,
        "notReached": replay.not_reached,
        "questions": [
            {"task": each.task.name, "place": each.task.location, "text": each.text} for each in replay.unrecorded
        ],
        "notes": list(replay.notes),
    }
