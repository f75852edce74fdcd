"""A run as lines: a waterfall of tasks and requests, what each write changed, what failed, the status."""

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from rolecall.kube.durations import format_duration
from rolecall.page.views import RequestView, RunView, Span, TaskView
from rolecall.top.body import GAP, HEAD, MINOR, STYLES, WIDEST, Body, Cell, line, outcome_cell, wrapped
from rolecall.top.objects_page import name_of
from rolecall.top.screen import Choice

_WHOLE: Final = 1000
_WIDEST_BAR: Final = 100
_TOOK: Final = 8
_NOT_FOUND: Final = 404
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def run_body(view: RunView, width: int, height: int) -> Body:
    """Return a run on a page of which ``height`` lines are seen at a time."""
    facts = f"started {view.started}, took {format_duration(view.seconds)}, ran {view.content}"
    head = (
        line(width, (f"Run of {view.kind_name} {name_of(view.namespace, view.name)}", HEAD), *_spaced(view.outcome)),
        line(width, ("Because ", MINOR), ("; ".join(view.because), "")),
        line(width, (facts, MINOR)),
    )
    lines = tuple(_lines(view, width))
    room = max(1, height - len(head))
    choices = tuple(Choice(str(number), number) for number in range(max(1, len(lines) - room + 1)))
    return Body(head, lines, choices, is_text=True)


def _spaced(outcome: str) -> tuple[Cell, Cell]:
    return ("  ", ""), outcome_cell(outcome)


def _lines(view: RunView, width: int) -> Iterator[Text]:
    for note in _notes(view):
        yield line(width, (note, "yellow"))
    for failure in view.failures:
        yield line(width)
        yield from wrapped(width, failure, "red")
    yield line(width)
    yield line(width, ("Tasks and their requests", HEAD))
    for task in view.tasks:
        yield from _task(task, width)
    if not view.tasks:
        yield line(width, ("No task has run.", MINOR))
    if view.other_requests:
        yield line(width, ("Requests of no task that has ended", HEAD))
        for request in view.other_requests:
            yield from _request(request, width)
    if view.left_out:
        text = f"{view.left_out} more requests are not shown; 'rolecall record show' shows all of them."
        yield line(width, (text, MINOR))
    if view.status:
        yield line(width)
        yield line(width, ("The status that was written", HEAD))
        for text in view.status:
            yield from wrapped(width, text)


def _notes(view: RunView) -> Iterator[str]:
    if view.is_finalizing:
        yield "It ran for the finalizer of the object."
    if view.requeue_after_seconds is not None:
        yield f"It asked to run again after {format_duration(view.requeue_after_seconds)}."
    if not view.is_complete:
        yield "The record is not complete: not every body was kept."


def _task(task: TaskView, width: int) -> Iterator[Text]:
    text, style = outcome_cell(task.result)
    name = task.name + (f" on {task.host}" if task.host and task.host != "localhost" else "")
    cells = [(f"{text[:1]} ", style), (name, ""), (f" {text[2:]}", style)]
    yield _bar_line(cells, task.span, STYLES.get(task.result, ""), task.seconds, width)
    if task.place or task.is_hidden:
        hidden = "no_log" if task.is_hidden else ""
        yield line(width, (f"  {' '.join(filter(None, (task.place, hidden)))}", MINOR))
    if task.message:
        yield from wrapped(width, task.message, STYLES.get(task.result, ""), 2)
    for item, result in task.items:
        yield line(width, (f"  {item}: ", ""), (result, STYLES.get(result, "")))
    for request in task.requests:
        yield from _request(request, width)


def _request(request: RequestView, width: int) -> Iterator[Text]:
    # Modules ask whether an object is there: that it is not is no trouble.
    is_trouble = request.has_failed and not (request.verb == "get" and request.status == _NOT_FOUND)
    status = str(request.status) if request.status is not None else "no answer"
    cells = [(f"  {request.verb} ", MINOR), (request.target, ""), (f" {status}", "red" if is_trouble else MINOR)]
    yield _bar_line(cells, request.span, "red" if is_trouble else "blue", request.seconds, width)
    for note in request.notes:
        yield line(width, (f"    {note}", MINOR))
    for effect in request.effects:
        yield from wrapped(width, effect, _DIFF_STYLES.get(effect[:1], MINOR), 4)


def _bar_line(cells: list[Cell], span: Span | None, style: str, seconds: float, width: int) -> Text:
    """Return what happened, its place in the time of the run, and how long it took."""
    room = min(width, WIDEST)
    name_room = max(1, room * 3 // 5)
    bar_room = min(_WIDEST_BAR, max(0, room - name_room - _TOOK - 2 * GAP))
    first, what, last = cells
    what_room = max(1, name_room - cell_len(first[0]) - cell_len(last[0]))
    name = line(what_room, what)  # the end, which says how it went, is not cut off
    text = line(name_room, first, (name.plain, what[1]), last)
    text.append(" " * (name_room - text.cell_len + GAP))
    text.append(set_cell_size(_bar(span, bar_room), bar_room), style)
    text.append(" " * GAP + format_duration(seconds)[:_TOOK].rjust(_TOOK))
    text.truncate(width)
    return text


def _bar(span: Span | None, room: int) -> str:
    if span is None or not room:
        return ""
    start = max(0, min(span.start * room // _WHOLE, room - 1))
    length = max(1, min(-(-span.length * room // _WHOLE), room - start))
    return " " * start + "━" * length
