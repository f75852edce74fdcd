"""The list of objects as lines."""

from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from rolecall.kube.durations import format_duration
from rolecall.page.addresses import object_path, run_path
from rolecall.page.views import ListView, Query, RowView, State, WaitView
from rolecall.page.words import ago, until
from rolecall.top.body import GAP, HEAD, MINOR, Body, Cell, aligned, because, line, state_cell, wait_text
from rolecall.top.screen import Choice, Page, Place

_COLUMNS = {"STATE": 11, "KIND": 10, "OBJECT": 40, "LAST RUN": 10, "TOOK": 6, "WHY": 8, "WAITS FOR": 8}
"""The columns, and how narrow each may get before all of them do: what an object is called matters most."""
_LEFT_OUT = ("TOOK", "WAITS FOR")
"""The columns that go where names would be cut off otherwise: the page of an object says both."""


def objects_body(view: ListView, width: int, now: float) -> Body:
    """Return a list of objects."""
    cells = [{title: (title, HEAD) for title in _COLUMNS}, *(_cells(row, now) for row in view.rows)]
    columns = _columns(view, cells, width)
    rows = [[each[title] for title in columns] for each in cells]
    titles, *lines = aligned(rows, width, list(columns.values()))
    head = [line(width, *_totals(view)), *_troubles(view, width), line(width, (_asked(view), ""))]
    if not view.rows:
        return Body((*head, line(width)), (line(width, ("No object is like that.", MINOR)),))
    choices = (_choice(row, number) for number, row in enumerate(view.rows))
    return Body((*head, titles), tuple(lines), tuple(choices))


def _columns(view: ListView, cells: list[dict[str, Cell]], width: int) -> dict[str, int]:
    """Return the columns that are shown, with how narrow each may get."""
    is_named = len(view.kinds) == 1 or view.query.kind  # the lines above name the kind
    columns = {title: least for title, least in _COLUMNS.items() if title != "KIND" or not is_named}
    widths = [min(least, max(cell_len(each[title][0]) for each in cells)) for title, least in columns.items()]
    if sum(widths) + GAP * (len(widths) - 1) <= width:
        return columns
    return {title: least for title, least in columns.items() if title not in _LEFT_OUT}


def name_of(namespace: str, name: str) -> str:
    """Return the name of an object as everywhere in Kubernetes."""
    return f"{namespace}/{name}" if namespace else name


def _cells(row: RowView, now: float) -> dict[str, Cell]:
    run = row.last_run
    return {
        "STATE": state_cell(row.state),
        "KIND": (row.kind_name, MINOR),
        "OBJECT": (name_of(row.namespace, row.name), ""),
        "LAST RUN": (ago(run.started, now) if run else "none", "" if run else MINOR),
        "TOOK": (format_duration(run.seconds) if run else "", ""),
        "WHY": (because(run.because) if run else "", ""),
        "WAITS FOR": (_wait(row.waits_for, now), ""),
    }


def _wait(wait: WaitView, now: float) -> str:
    """Return what an object waits for, with the time first: a narrow column cuts off the end."""
    return wait_text(wait, now) if wait.until is None else f"{until(wait.until, now)}: {wait.text}"


def _choice(row: RowView, number: int) -> Choice:
    place, run = Place(Page.OBJECT, object_path(row.kind, row.namespace, row.name)), None
    if row.last_run and row.last_run.has_record:
        run = Place(Page.RUN, run_path(row.kind, row.namespace, row.name, row.last_run.id))
    return Choice(place.path, number, place, run)


def _totals(view: ListView) -> Iterator[Cell]:
    """Yield how many objects of all kinds are in which state."""
    states = Counter[str]()
    for kind in view.kinds:
        states.update(kind.states)
    total = sum(kind.objects for kind in view.kinds)
    yield f"{total} {'object' if total == 1 else 'objects'} of {', '.join(each.kind for each in view.kinds)}", ""
    for state in State:
        if states[state]:
            text, style = state_cell(state)
            yield "  ", ""
            yield f"{text} {states[state]}", style


def _troubles(view: ListView, width: int) -> Iterator[Text]:
    for kind in view.kinds:
        if kind.trouble:
            yield line(width, (f"{kind.kind}: {kind.trouble}", "red"))


def _asked(view: ListView) -> str:
    """Return which of them are shown."""
    parts = [f"Shown: {view.found}", *_filters(view.query)]
    parts.append("the last run first" if view.query.sort == "recent" else "by name")
    if view.pages > 1:
        parts.append(f"page {min(view.query.page, view.pages)} of {view.pages}")
    return ", ".join(parts)


def _filters(query: Query) -> Iterator[str]:
    if query.kind:
        yield f"kind {query.kind}"
    if query.namespace:
        yield f"namespace {query.namespace}"
    if query.state:
        yield query.state
    if query.text:
        yield f"with “{query.text}”"
