"""Logging: one line for each event, as JSON or as text.

Messages are constant and variable parts are keys, so that lines can be searched and counted. The keys of the current
reconcile (kind, namespace, name, job) are bound once with ``structlog.contextvars`` and are on every line of its task.
Lines are written to standard error; colors appear only on a terminal, and never with the variable NO_COLOR. Lines of
libraries that use ``logging`` have the same format. Values of local variables are never logged, because they may be
secrets.
"""

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from rolecall.system.imports import absent

with absent("rich"):  # structlog would format stack traces with it; _exception_formatter does so here, without 4 MiB
    import structlog

Logger = structlog.stdlib.BoundLogger
Event = MutableMapping[str, Any]
Processor = Callable[[Any, str, Event], Event]

Renderer = Callable[[Any, str, Event], str]
"""Returns the lines of an event, or raises structlog.DropEvent."""

ENCODERS = ("auto", "json", "console", "text")
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
TIME_ENCODINGS = ("epoch", "millis", "nano", "nanos", "iso8601", "rfc3339", "rfc3339nano")
_FIRST = ("level", "ts", "logger", "msg")
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The lowest level, the encoder, stack traces and the format of times.

    The encoder ``auto`` is ``text`` on a terminal if the program has lines for people, else ``console`` there, and
    ``json`` elsewhere.
    """

    level: str = "info"
    encoder: str = "auto"
    stacktrace_level: str = "error"
    time_encoding: str = "rfc3339nano"
    development: bool = False


def get_logger(name: str) -> Logger:
    """Return a logger whose lines have the key ``logger`` with this name."""
    return cast("Logger", structlog.get_logger(logger_name=name))


def is_text(settings: LogSettings) -> bool:
    """Return whether a program that has lines for people prints them."""
    return settings.encoder == "text" or (settings.encoder == "auto" and sys.stderr.isatty())


def is_colored() -> bool:
    """Return whether standard error is a terminal with colors, and NO_COLOR doesn't switch them off."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def configure(settings: LogSettings, *wording: Processor, text: Renderer | None = None) -> None:
    """Configure logging for the whole process; the processors ``wording`` can change messages and keys.

    ``text`` writes the lines for people, for the encoder ``text``.
    """
    number = LEVELS[settings.level]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _name_logger,
        structlog.processors.add_log_level,
        _timestamper(settings.time_encoding),
        _exception_formatter(LEVELS[settings.stacktrace_level]),
        *wording,
    ]
    renderers = [_make_printable, text] if text and is_text(settings) else _renderers(settings.encoder)
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    library_lines = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(library_lines)
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def _renderers(encoder: str) -> list[Any]:
    """Return the processors that write a line."""
    if encoder in ("console", "text") or (encoder == "auto" and sys.stderr.isatty()):
        return [
            _make_printable,
            _console_stacktrace,
            structlog.dev.ConsoleRenderer(colors=is_colored(), timestamp_key="ts"),
        ]
    renderer = structlog.processors.JSONRenderer(default=str, separators=(",", ":"))
    return [structlog.processors.EventRenamer("msg"), _order_keys, renderer]


def printable(text: str) -> str:
    """Return a text that can't control a terminal: of all control characters, line ends and tabs remain.

    Authors of objects and roles choose names and messages, and others read them.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


def _make_printable(_logger: object, _method: str, event: Event) -> Event:
    """Replace control characters in a line for the console; JSON escapes them itself."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value)
    return event


def _order_keys(_logger: object, _method: str, event: Event) -> Event:
    """Put the keys of every line first, then those of the event, then the context, for people who search with grep."""
    context = structlog.contextvars.get_contextvars()
    first = {key: event[key] for key in _FIRST if key in event}
    own = {key: value for key, value in event.items() if key not in first and key not in context}
    return first | own | {key: event[key] for key in context if key in event}


def _console_stacktrace(_logger: object, _method: str, event: Event) -> Event:
    """Make the console renderer print the stack trace below the line."""
    if "stacktrace" in event:
        event["exception"] = event.pop("stacktrace")
    return event


def _timestamper(encoding: str) -> Processor:
    def add_time(_logger: object, _method: str, event: Event) -> Event:
        event["ts"] = encoded_time(time.time_ns(), encoding)
        return event

    return add_time


def encoded_time(nanoseconds: int, encoding: str) -> str | int | float:
    """Return a POSIX time in nanoseconds in one of ``TIME_ENCODINGS``; strings are in UTC."""
    if encoding == "epoch":
        return nanoseconds / _NANOSECONDS
    if encoding == "millis":
        return nanoseconds / 1_000_000
    if encoding in ("nano", "nanos"):
        return nanoseconds
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    fraction = {"iso8601": f".{rest // 1_000_000:03}", "rfc3339nano": f".{rest:09}"}.get(encoding, "")
    return f"{text}{fraction}Z"


def _exception_formatter(stacktrace_level: int) -> Processor:
    """Return a processor that sets ``error`` for an exception, and from a level upwards also ``stacktrace``."""

    def format_exception(_logger: object, method: str, event: Event) -> Event:
        error = _exception_of(event.pop("exc_info", None))
        if error is not None:
            event.setdefault("error", f"{type(error).__name__}: {error}")
            if LEVELS.get(event.get("level", method), logging.ERROR) >= stacktrace_level:
                event["stacktrace"] = "".join(traceback.format_exception(error)).rstrip()
        return event

    return format_exception


def _exception_of(found: object) -> BaseException | None:
    """Return the exception of ``exc_info``, which is an exception, a triple, or true for the current exception."""
    if isinstance(found, BaseException):
        return found
    if isinstance(found, tuple):
        return cast("BaseException | None", found[1])
    return sys.exc_info()[1] if found else None


def _name_logger(_logger: object, _method: str, event: Event) -> Event:
    """Rename ``logger_name`` to ``logger``, as in other operators; structlog uses ``logger`` for itself."""
    if "logger_name" in event:
        event["logger"] = event.pop("logger_name")
    return event
