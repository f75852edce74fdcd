"""The form of log messages: people search for them, so they are constant, and failures start alike."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.static.repository import ROOT

CALLS = tuple(f"logger.{level}" for level in ("debug", "info", "warning", "error", "exception", "critical"))
OF_THE_OPERATOR_SDK = ("unrecognized log level",)
"""Messages in the Operator SDK's own words; a table in ``go_runner_log`` translates the others."""

OTHER_STARTS = re.compile(r"(could not|cannot|can't|unable to|did not|not able to)\b", re.IGNORECASE)
CONTRACTION = re.compile(r"\w(n't|'re|'ve|'ll)\b|\b(it|that|there)'s\b", re.IGNORECASE)


def constants(value: ast.expr) -> Iterator[str]:
    """Yield the constant strings that an expression can result in."""
    if isinstance(value, ast.IfExp):
        yield from constants(value.body)
        yield from constants(value.orelse)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def messages(text: str) -> Iterator[str]:
    """Yield the messages of a module's log calls, also those in a variable."""
    tree = ast.parse(text)
    assigned: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(ast.unparse(target), []).extend(constants(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in CALLS:
            yield from constants(node.args[0])
            yield from assigned.get(ast.unparse(node.args[0]), ())


ALL = {
    message: path.relative_to(ROOT)
    for path in sorted((ROOT / "src/rolecall").rglob("*.py"))
    for message in messages(path.read_text(encoding="utf-8"))
    if message not in OF_THE_OPERATOR_SDK
}


def mistake(message: str) -> str:
    """Return what is wrong with a message, an empty string if nothing is."""
    if OTHER_STARTS.match(message):
        return "a failure starts with 'Failed to'"
    if CONTRACTION.search(message):
        return "log messages have no contractions"
    if not message[:1].isupper():
        return "a message starts with a capital letter"
    return "a message has no period" if message.endswith(".") else ""


def test_messages_are_found_in_calls_and_in_variables() -> None:
    assert {"Reconcile started", "Fork server not ready; runs start cold until the next attempt"} <= ALL.keys()


@pytest.mark.parametrize("message", ALL)
def test_log_message_has_the_common_form(message: str) -> None:
    assert mistake(message) == "", f"{ALL[message]}: {message}"


@pytest.mark.parametrize(
    "message", ["Could not read", "Cannot read", "Failed, it isn't there", "failed to read", "Failed to read."]
)
def test_other_forms_are_mistakes(message: str) -> None:
    assert mistake(message)
