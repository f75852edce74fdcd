"""An object as lines: its conditions, its runs, and what wakes it."""

from collections.abc import Iterator

from rich.text import Text

from rolecall.kube.durations import format_duration
from rolecall.page.addresses import run_path
from rolecall.page.views import ObjectView, RunLineView
from rolecall.page.words import ago
from rolecall.top.body import (
    HEAD,
    MINOR,
    Body,
    Cell,
    aligned,
    because,
    line,
    outcome_cell,
    state_cell,
    wait_text,
    wrapped,
)
from rolecall.top.objects_page import name_of
from rolecall.top.screen import Choice, Page, Place

_STATUS_STYLES = {"True": "", "False": MINOR}


def object_body(view: ObjectView, width: int, now: float) -> Body:
    """Return an object."""
    row, lines = view.row, list[Text]()
    choices = list[Choice]()
    for section, title in ((_runs, "Runs"), (_conditions, "Conditions"), (_wakes, "What wakes it")):
        lines += [line(width), line(width, (title, HEAD))]
        for text, place in section(view, width, now):
            choices.append(Choice(place.path if place else f"line {len(lines)}", len(lines), place, place))
            lines.append(text)
    head = [
        line(width, (f"{row.kind_name} {name_of(row.namespace, row.name)}", HEAD), ("  ", ""), state_cell(row.state)),
        line(width, ("Waits for: ", MINOR), (wait_text(row.waits_for, now), "")),
        line(width, (_facts(view), MINOR)),
    ]
    return Body(tuple(head), tuple(lines), tuple(choices))


def _facts(view: ObjectView) -> str:
    parts = [view.api_version, f"generation {view.generation}"]
    if view.shard is not None:
        parts.append(f"shard {view.shard}, held by {'this' if view.is_mine else 'another'} replica")
    return ", ".join(parts)


_Lines = Iterator[tuple[Text, Place | None]]


def _runs(view: ObjectView, width: int, now: float) -> _Lines:
    if not view.runs:
        yield line(width, ("None since the operator has started, or it records no runs.", MINOR)), None
        return
    for run, text in zip(view.runs, aligned([_run(run, now) for run in view.runs], width), strict=True):
        path = run_path(view.row.kind, view.row.namespace, view.row.name, run.id)
        yield text, Place(Page.RUN, path) if run.has_record else None


def _run(run: RunLineView, now: float) -> list[Cell]:
    return [
        outcome_cell(run.outcome),
        (ago(run.started, now), ""),
        (format_duration(run.seconds), ""),
        (_number(run.tasks, "task"), MINOR),
        (_number(run.requests, "request"), MINOR),
        (because(run.because), "" if run.has_record else MINOR),
    ]


def _number(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _conditions(view: ObjectView, width: int, _now: float) -> _Lines:
    if not view.conditions:
        yield line(width, ("It has none yet.", MINOR)), None
        return
    rows = [
        [(each.type, ""), (each.status, _STATUS_STYLES.get(each.status, "")), (each.reason, ""), (each.since, MINOR)]
        for each in view.conditions
    ]
    for condition, text in zip(view.conditions, aligned(rows, width), strict=True):
        yield text, None
        if condition.message:
            yield from ((part, None) for part in wrapped(width, condition.message, MINOR, 4))


def _wakes(view: ObjectView, width: int, _now: float) -> _Lines:
    yield from ((text, None) for text in aligned([[(each.what, ""), (each.how, MINOR)] for each in view.wakes], width))
    if view.more_reads:
        yield line(width, (f"{view.more_reads} more that its runs have read", MINOR)), None
