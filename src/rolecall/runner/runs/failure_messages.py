"""The message of a failed task: the most useful text in the result of a module.

Modules say why they failed in different places: a message, the output of a program, a traceback, the items of a loop.
"""

import json
from collections.abc import Mapping
from typing import Any

from rolecall.runner.runs.events import HIDDEN, strip_colours

_FAILED_PREFIX = "Task failed: "
_EXIT_CODE_ONLY = ("non-zero return code", "The command exited with a non-zero return code.")
"""The messages of the command modules up to ansible-core 2.20 and from 2.21: they name neither code nor reason."""


def result_message(result: Mapping[str, Any]) -> str:
    """Return the most useful text of a task's result; for a loop, that of the first item that failed."""
    for item in _failed_items(result):
        return HIDDEN if "censored" in item else result_message(item)
    message = to_text(result.get("msg")).removeprefix(_FAILED_PREFIX)
    if message in _EXIT_CODE_ONLY:
        return _with_tail(f"{_EXIT_CODE_ONLY[0]} {result.get('rc')}", result.get("stderr") or result.get("stdout"))
    if result.get("module_stderr"):
        return _with_tail(message or "the module crashed", result["module_stderr"])
    if message:
        return message
    return _last_lines(to_text(result.get("exception"))) or to_text(result.get("reason"))


def _failed_items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    items = result.get("results")
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, Mapping) and (item.get("failed") or item.get("unreachable"))]


def _with_tail(message: str, output: object) -> str:
    tail = _last_lines(to_text(output))
    return f"{message}: {tail}" if tail else message


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in strip_colours(text).splitlines() if line.strip()]
    return " | ".join(lines[-count:])


def to_text(value: object) -> str:
    """Return a value as text: nothing for None, JSON for what is not a string."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)
