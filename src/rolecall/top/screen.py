"""What is on the screen, and what a key changes of it. Nothing here knows a terminal.

The first place is the list; Enter opens another one on top of it. What is chosen stays chosen while the list changes
its order around it, because a choice is known by its ID.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rolecall.page.addresses import list_path
from rolecall.page.views import Query, State

SORTS: Final = ("name", "recent")
STATES: Final = ("", *State)
_LONGEST: Final = 100


class Page(StrEnum):
    """Which page a place shows."""

    OBJECTS = "objects"
    OBJECT = "object"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Place:
    """A page that is open: its path, and what is chosen on it, by its ID and where it was."""

    page: Page
    path: str
    chosen: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A line that can be chosen, what Enter opens, and the run that w opens."""

    ident: str
    line: int
    opens: Place | None = None
    run: Place | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """What a key works on: the choices of the page, how many of its lines are seen, how many pages the list has."""

    choices: tuple[Choice, ...] = ()
    height: int = 1
    pages: int = 1


@dataclass(frozen=True, slots=True)
class Screen:
    """What is on the screen; ``typed`` is what is searched for while it is typed."""

    query: Query
    places: tuple[Place, ...]
    typed: str | None = None
    shows_keys: bool = False
    has_ended: bool = False

    @classmethod
    def of(cls, query: Query) -> "Screen":
        """Return the screen with a list."""
        return cls(query, (Place(Page.OBJECTS, list_path(query)),))

    @property
    def place(self) -> Place:
        """The place that is seen."""
        return self.places[-1]


def number_of_choice(place: Place, choices: tuple[Choice, ...]) -> int:
    """Return which choice is the chosen one, or the one at its place if it is gone."""
    for number, choice in enumerate(choices):
        if choice.ident == place.chosen:
            return number
    return max(0, min(place.number, len(choices) - 1))


def press(screen: Screen, key: str, around: Around) -> Screen:
    """Return the screen after a key; one without a meaning changes nothing."""
    if screen.typed is not None:
        return _type(screen, screen.typed, key)
    if screen.shows_keys:
        return replace(screen, shows_keys=False)
    if key in _MOVES:
        return _move(screen, _MOVES[key](around), around.choices)
    action = _LIST_KEYS.get(key) if screen.place.page is Page.OBJECTS else None
    action = action or _KEYS.get(key)
    return action(screen, around) if action else screen


def _type(screen: Screen, typed: str, key: str) -> Screen:
    if key == "escape":
        return replace(screen, typed=None)
    if key == "enter":
        return _ask(replace(screen, typed=None), replace(screen.query, text=typed.strip(), page=1))
    if key == "backspace":
        return replace(screen, typed=typed[:-1])
    is_text = len(key) == 1 and key.isprintable() and len(typed) < _LONGEST
    return replace(screen, typed=typed + key) if is_text else screen


def _ask(screen: Screen, query: Query) -> Screen:
    return screen if query == screen.query else replace(Screen.of(query), typed=screen.typed)


def _move(screen: Screen, steps: int, choices: tuple[Choice, ...]) -> Screen:
    if not choices:
        return screen
    number = max(0, min(number_of_choice(screen.place, choices) + steps, len(choices) - 1))
    place = replace(screen.place, chosen=choices[number].ident, number=number)
    return replace(screen, places=(*screen.places[:-1], place))


def _open(screen: Screen, around: Around, name: str = "opens") -> Screen:
    if not around.choices:
        return screen
    choice = around.choices[number_of_choice(screen.place, around.choices)]
    place: Place | None = getattr(choice, name)
    if place is None:
        return screen
    left = _move(screen, 0, around.choices)
    return replace(left, places=(*left.places, place))


def _open_run(screen: Screen, around: Around) -> Screen:
    return _open(screen, around, "run")


def _back(screen: Screen, _: Around) -> Screen:
    return replace(screen, places=screen.places[:-1]) if len(screen.places) > 1 else screen


def _leave(screen: Screen, around: Around) -> Screen:
    return _back(screen, around) if len(screen.places) > 1 else replace(screen, has_ended=True)


def _next_sort(screen: Screen, _: Around) -> Screen:
    return _ask(screen, replace(screen.query, sort=_after(SORTS, screen.query.sort), page=1))


def _next_state(screen: Screen, _: Around) -> Screen:
    return _ask(screen, replace(screen.query, state=_after(STATES, screen.query.state), page=1))


def _after(values: tuple[str, ...], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)] if value in values else values[0]


def _turn(screen: Screen, pages: int, around: Around) -> Screen:
    page = max(1, min(screen.query.page, around.pages) + pages)
    return _ask(screen, replace(screen.query, page=min(page, around.pages)))


_MOVES: Final[dict[str, Callable[[Around], int]]] = {
    "up": lambda _: -1,
    "k": lambda _: -1,
    "down": lambda _: 1,
    "j": lambda _: 1,
    "page up": lambda around: -around.height,
    "page down": lambda around: around.height,
    " ": lambda around: around.height,
    "home": lambda around: -len(around.choices),
    "g": lambda around: -len(around.choices),
    "end": lambda around: len(around.choices),
    "G": lambda around: len(around.choices),
}
_Action = Callable[[Screen, Around], Screen]
_KEYS: Final[dict[str, _Action]] = {
    "enter": _open,
    "right": _open,
    "l": _open,
    "w": _open_run,
    "escape": _back,
    "backspace": _back,
    "left": _back,
    "h": _back,
    "q": _leave,
    "?": lambda screen, _: replace(screen, shows_keys=True),
}
_LIST_KEYS: Final[dict[str, _Action]] = {
    "/": lambda screen, _: replace(screen, typed=screen.query.text),
    "s": _next_sort,
    "f": _next_state,
    "n": lambda screen, around: _turn(screen, 1, around),
    "p": lambda screen, around: _turn(screen, -1, around),
}
HELP: Final = (
    ("↑ ↓ k j", "choose a line"),
    ("PgUp PgDn Home End", "move further"),
    ("Enter", "open an object, or a run as a waterfall"),
    ("w", "open the last run of an object as a waterfall"),
    ("Esc Backspace q", "go back; q in the list quits"),
    ("/", "search for a part of namespace/name"),
    ("f", "show only the next state"),
    ("s", "change the order: by name, the last run first"),
    ("n p", "next page, previous page of a long list"),
    ("?", "show these keys"),
)
"""The keys and what they do."""
