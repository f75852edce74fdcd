"""The whole screen as lines: the operator, a page of it, and which keys there are."""

from dataclasses import dataclass

from rich.text import Text

from rolecall.page.views import ListView, ObjectView, ReplicaView, RunView
from rolecall.top.body import HEAD, MINOR, Body, line
from rolecall.top.object_page import object_body
from rolecall.top.objects_page import objects_body
from rolecall.top.run_page import run_body
from rolecall.top.screen import HELP, Around, Page, Screen, number_of_choice

View = ListView | ObjectView | RunView
_FRAME_LINES = 2
_KEYS = {
    Page.OBJECTS: "Enter open  w last run  / search  f state  s order  ? keys  q quit",
    Page.OBJECT: "Enter waterfall  Esc back  ? keys",
    Page.RUN: "↑ ↓ PgUp PgDn move  Esc back  ? keys",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known: the address, the view if it is there, what is wrong, and the time."""

    url: str
    view: View | None
    trouble: str
    now: float


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the terminal in cells."""

    width: int
    height: int


def body_of(screen: Screen, facts: Facts, size: Size) -> Body:
    """Return the page that is seen."""
    width, height = size.width, size.height - _FRAME_LINES - bool(facts.trouble)
    if screen.shows_keys:
        return Body((line(width, ("Keys", HEAD)),), tuple(line(width, (f"{k:<20}", HEAD), (t, "")) for k, t in HELP))
    match facts.view:
        case ListView() as view:
            return objects_body(view, width, facts.now)
        case ObjectView() as view:
            return object_body(view, width, facts.now)
        case RunView() as view:
            return run_body(view, width, height)
    return Body((), () if facts.trouble else (line(width, ("Reading …", MINOR)),))


def around(body: Body, facts: Facts, size: Size) -> Around:
    """Return what keys work on."""
    height = max(1, size.height - _FRAME_LINES - bool(facts.trouble) - len(body.head))
    return Around(body.choices, height, facts.view.pages if isinstance(facts.view, ListView) else 1)


def frame(screen: Screen, facts: Facts, size: Size) -> list[Text]:
    """Return the lines of the screen, as many as it has."""
    body = body_of(screen, facts, size)
    top = [*_title(facts, size.width), *body.head]
    room = size.height - len(top) - 1
    shown = _window(screen, body, max(0, room))
    shown += [line(size.width)] * (room - len(shown))
    seen = [*top, *shown][: max(0, size.height - 1)]
    return [*seen, _keys(screen, size.width)]


def printed(url: str, view: ListView, width: int, now: float) -> list[Text]:
    """Return all lines of a list, for what is no terminal."""
    body = objects_body(view, width, now)
    lines = [*_title(Facts(url, view, "", now), width), *body.head, *body.lines]
    if view.found > len(view.rows):
        more = f"{view.found - len(view.rows)} more: choose with --kind, --namespace, --state and --search"
        lines.append(line(width, (more, MINOR)))
    return lines


def _window(screen: Screen, body: Body, room: int) -> list[Text]:
    """Return the lines that are seen: those around the chosen one, which is marked."""
    if screen.shows_keys or not body.choices:
        return list(body.lines[:room])
    chosen = body.choices[number_of_choice(screen.place, body.choices)].line
    last = max(0, len(body.lines) - room)
    start = min(chosen if body.is_text else max(0, chosen - room // 2), last)
    seen = [text.copy() for text in body.lines[start : start + room]]
    if not body.is_text and 0 <= chosen - start < len(seen):
        seen[chosen - start].stylize("reverse")
    return seen


def _title(facts: Facts, width: int) -> list[Text]:
    replica: ReplicaView | None = facts.view.replica if facts.view else None
    text = ""
    if replica:
        runs = f"{replica.runs} of {replica.most_runs}" if replica.most_runs else str(replica.runs)
        text = f"  {runs} {'run' if replica.runs == 1 and not replica.most_runs else 'runs'} now  {replica.text}"
    lines = [
        line(width, (f"rolecall {replica.version if replica else ''}".strip(), HEAD), (f"  {facts.url}{text}", ""))
    ]
    return lines + ([line(width, (facts.trouble, "bold red"))] if facts.trouble else [])


def _keys(screen: Screen, width: int) -> Text:
    if screen.typed is not None:
        shown = screen.typed[-max(1, width - 40) :]
        return line(width, ("Search: ", HEAD), (f"{shown}▏", ""), ("  Enter show  Esc cancel", MINOR))
    return line(width, ("any key goes back" if screen.shows_keys else _KEYS[screen.place.page], MINOR))
