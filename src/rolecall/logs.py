"""Logging: one line for each event, as JSON for machines or as text for people at a terminal.

Messages are constant and what varies are keys, so that lines can be searched and counted. What belongs to the
reconcile in progress (kind, namespace, name, job) is bound once with ``structlog.contextvars`` and stands on every
line of its task. Everything goes to standard error; colours appear only on a terminal. Lines of libraries that use
``logging`` come the same way.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, cast

import structlog

Logger = structlog.stdlib.BoundLogger


def get_logger(name: str) -> Logger:
    """Return a logger whose lines carry ``logger: name``."""
    return cast("Logger", structlog.get_logger(logger_name=name))


def set_up(level: str = "info", form: str = "auto") -> None:
    """Configure logging for the whole process.

    ``level`` is debug, info, warning or error; ``form`` is json, console or auto (console when standard error is a
    terminal).
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    on_terminal = sys.stderr.isatty()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _name_logger,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    if form == "console" or (form == "auto" and on_terminal):
        closing: list[Any] = [structlog.dev.ConsoleRenderer(colors=on_terminal, timestamp_key="ts")]
    else:
        closing = [
            structlog.processors.dict_tracebacks,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(default=str),
        ]
    structlog.configure(
        processors=[*shared, *closing],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    library_lines = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *closing]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(library_lines)
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def _name_logger(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Give the logger's name the key that it has in other operators; structlog takes ``logger`` for itself."""
    if "logger_name" in event:
        event["logger"] = event.pop("logger_name")
    return event
