"""Views as HTML, and the addresses of the pages.

Every string is escaped. There are no inline scripts and styles, because the page's policy forbids them.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from yarl import URL

from rolecall.kube.failures import seconds_of, short_message
from rolecall.kube.quantities import format_duration, time_text
from rolecall.runner.dashboard.views import (
    SHAPES,
    Query,
    RowView,
    RunView,
    State,
    ago,
    condition_groups,
    lasting,
    until,
)
from rolecall.runner.record.history import RunLine
from rolecall.system.clock import SYSTEM_CLOCK

NO_NAMESPACE: Final = "-"
"""Replaces the namespace of a cluster-scoped object in paths; it isn't a valid name of a namespace."""

STATIC_TYPES: Final = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "htmx.LICENSE": "text/plain",
    "icon.svg": "image/svg+xml",
}
"""The static files and their types."""

UPDATE_SECONDS: Final = 2
SORTS: Final = ("failing", "name", "recent")
"""The orders of a list; the first is the usual one."""

_GROUP: Final = re.compile(r"[0-9a-f]{12}")
_OF_TASK: Final = re.compile(r"(?:Finalizer \S+: )?Task ['\"]")
_MAX_LENGTH: Final = 253
_MAX_DIGITS: Final = 6
_HERE: Final = Path(__file__).parent
_POLLED: Final = {"objects": "object_list.html", "object": "object_details.html"}
"""The template of the part of each page that updates itself."""


def object_path(kind: str, namespace: str, name: str) -> str:
    """Return the path of an object's page."""
    return f"/kinds/{quote(kind, safe='')}/{quote(namespace or NO_NAMESPACE, safe='')}/{quote(name, safe='')}"


def run_path(kind: str, namespace: str, name: str, ident: str) -> str:
    """Return the path of a run's page."""
    return f"{object_path(kind, namespace, name)}/runs/{quote(ident, safe='')}"


def list_path(query: Query, **changes: Any) -> str:
    """Return the path of a list; ``changes`` are other values for the fields of the query."""
    values, usual = asdict(replace(query, **changes)), asdict(Query())
    text = urlencode({"q" if name == "text" else name: values[name] for name in usual if values[name] != usual[name]})
    return f"/?{text}" if text else "/"


def part_path(address: str) -> str:
    """Return the address of the part of a page that updates itself."""
    return str(URL(address).update_query(part="polled"))


def query_of(values: Mapping[str, str]) -> Query:
    """Return the query in a query string; invalid values are ignored."""
    state, failure, sort, page = (values.get(name, "") for name in ("state", "failure", "sort", "page"))
    is_number = page.isascii() and page.isdigit() and len(page) <= _MAX_DIGITS
    return Query(
        kind=values.get("kind", "")[:_MAX_LENGTH],
        namespace=values.get("namespace", "")[:_MAX_LENGTH],
        state=state if state in list(State) else "",
        text=values.get("q", "").strip()[:_MAX_LENGTH],
        failure=failure if _GROUP.fullmatch(failure) else "",
        sort=sort if sort in SORTS else SORTS[0],
        page=max(1, int(page)) if is_number else 1,
    )


def own_cause(cause: str, row: RowView | RunView) -> str:
    """Return a cause without the name of the object that it is shown next to."""
    name = f"{row.namespace}/{row.name}" if row.namespace else row.name
    return cause.removeprefix(f"{row.kind_name} {name}").removeprefix(":").strip() or cause


def first_cause(line: RunLine | RunView, row: RowView | RunView) -> str:
    """Return why the first of the failed runs ran that a run repeats, empty if it isn't a retry."""
    return own_cause(line.first_because[0], row) if line.first_because else ""


def is_of_task(failure: str) -> bool:
    """Return whether a failure of a run is that of a task, and not of the run itself, such as a limit."""
    return _OF_TASK.match(failure) is not None


@cache
def static_file(name: str) -> bytes:
    """Return one of ``STATIC_TYPES``."""
    return (_HERE / "static" / name).read_bytes()


@cache
def static_path(name: str) -> str:
    """Return the path of a static file; it changes with the content."""
    return f"/static/{name}?v={hashlib.sha256(static_file(name)).hexdigest()[:12]}"


@dataclass(slots=True)
class Pages:
    """Renders the templates; ``now`` is the wall clock."""

    now: Callable[[], float] = SYSTEM_CLOCK.now
    _environment: Environment = field(init=False)

    def __post_init__(self) -> None:
        """Load the templates."""
        environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "ago": lambda seconds: ago(seconds, self.now()),
            "until": lambda seconds: until(seconds, self.now()),
            "lasting": lambda seconds: lasting(seconds, self.now()),
            "duration": format_duration,
            "epoch": seconds_of,
            "short": short_message,
            "utc": time_text,
        }
        environment.globals |= {
            "object_path": object_path,
            "run_path": run_path,
            "list_path": list_path,
            "static_path": static_path,
            "own_cause": own_cause,
            "first_cause": first_cause,
            "is_of_task": is_of_task,
            "condition_groups": condition_groups,
            "shapes": SHAPES,
            "states": list(State),
            "update_seconds": UPDATE_SECONDS,
        }
        self._environment = environment

    def fragment(self, name: str, address: str, view: Any) -> tuple[Markup, str]:
        """Return the part of the page at ``address`` that updates itself, and a tag that changes with it."""
        inner = self._environment.get_template(_POLLED[name]).render(view=view)
        tag = f'"{hashlib.sha256(inner.encode()).hexdigest()[:32]}"'
        content = {"inner": Markup(inner), "address": address, "part": part_path(address), "tag": tag}  # noqa: S704 - a rendered template
        polled = self._environment.get_template("polled.html").render(content)
        return Markup(polled), tag  # noqa: S704 - a rendered template

    def page(self, name: str, view: Any, polled: Markup | None = None) -> str:
        """Return a whole page."""
        return self._environment.get_template(f"{name}.html").render(view=view, polled=polled)

    def message(self, title: str, text: str) -> str:
        """Return a page with a message."""
        return self._environment.get_template("message.html").render(title=title, text=text)
