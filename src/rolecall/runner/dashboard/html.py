"""Views as HTML.

Every text is escaped. There are no inline scripts and styles, because the policy of the page forbids them.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rolecall.kube.durations import format_duration
from rolecall.runner.dashboard.addresses import list_path, object_path, run_path
from rolecall.runner.dashboard.formatting import SHAPES, ago, until, utc
from rolecall.runner.dashboard.views import State

STATIC_TYPES: Final = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "htmx.LICENSE": "text/plain",
    "icon.svg": "image/svg+xml",
}
"""The files that the page consists of besides its HTML."""

UPDATE_SECONDS: Final = 2
_HERE: Final = Path(__file__).parent


@cache
def static_file(name: str) -> bytes:
    """Return one of ``STATIC_TYPES``."""
    return (_HERE / "static" / name).read_bytes()


@cache
def static_path(name: str) -> str:
    """Return the path of a static file; it changes when the file does."""
    return f"/static/{name}?v={hashlib.sha256(static_file(name)).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a page that updates itself, and a tag that changes with it."""

    html: Markup
    tag: str


@dataclass(slots=True)
class Pages:
    """Renders the templates; ``now`` is the wall clock."""

    now: Callable[[], float] = time.time
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
        environment.filters |= {"ago": self._ago, "until": self._until, "took": format_duration, "utc": utc}
        environment.globals |= {
            "object_path": object_path,
            "run_path": run_path,
            "list_path": list_path,
            "static_path": static_path,
            "shapes": SHAPES,
            "states": list(State),
            "update_seconds": UPDATE_SECONDS,
        }
        self._environment = environment

    def fragment(self, name: str, address: str, view: Any) -> Fragment:
        """Return what updates itself on a page, from ``address``."""
        inner = self._environment.get_template(f"{name}_live.html").render(view=view)
        tag = f'"{hashlib.sha256(inner.encode()).hexdigest()[:32]}"'
        live = self._environment.get_template("live.html").render(inner=Markup(inner), address=address, tag=tag)  # noqa: S704 - a rendered template
        return Fragment(Markup(live), tag)  # noqa: S704 - a rendered template

    def page(self, name: str, view: Any, live: Markup | None = None) -> str:
        """Return a whole page."""
        return self._environment.get_template(f"{name}.html").render(view=view, live=live)

    def message(self, title: str, text: str) -> str:
        """Return a page that says only this."""
        return self._environment.get_template("message.html").render(title=title, text=text)

    def _ago(self, seconds: float) -> str:
        return ago(seconds, self.now())

    def _until(self, seconds: float) -> str:
        return until(seconds, self.now())
