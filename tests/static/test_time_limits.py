"""Limits of time in tests only end what would never end: a busy machine may give a process no CPU for seconds.

A limit that a test expects to be reached, by ``TimeoutError``, may be shorter.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.static.repository import ROOT

LEAST_SECONDS = 20
WAITS = {
    "wait_for": ("timeout", -1),
    "timeout": ("delay", -1),
    "until": ("seconds", -1),
    "wait": ("timeout", -1),
    "eventually": ("within", 2),
    "wait_until_gone": ("within", -1),
}
"""Functions and methods that end a wait, with the name of their limit's parameter and its index if it is positional."""


def limit_of(call: ast.Call) -> object:
    """Return the limit that a call waits at most, if it is written there."""
    name = ast.unparse(call.func)
    parameter, index = WAITS.get(name.rpartition(".")[2], ("", 0))
    # asyncio.wait returns at its limit, so tests use it to see that nothing happens.
    if not parameter or name == "asyncio.wait":
        return None
    given = [*call.args[index:][:1], *(each.value for each in call.keywords if each.arg == parameter)]
    return next((each.value for each in given if isinstance(each, ast.Constant)), None)


def expects_timeout(node: ast.AST) -> bool:
    """Return whether a statement handles the ``TimeoutError`` of what it contains."""
    if isinstance(node, ast.With | ast.AsyncWith):
        return any("TimeoutError" in ast.unparse(each.context_expr) for each in node.items)
    if isinstance(node, ast.Try):
        return any(each.type is not None and "TimeoutError" in ast.unparse(each.type) for each in node.handlers)
    return False


def impatient(node: ast.AST) -> Iterator[str]:
    """Yield the calls below a node whose limit is too short, with their lines."""
    if expects_timeout(node):
        return
    if isinstance(node, ast.Call):
        limit = limit_of(node)
        if isinstance(limit, int | float) and 0 < limit < LEAST_SECONDS:
            yield f"{node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        yield from impatient(child)


def test_waits_have_time_for_a_busy_machine() -> None:
    found = {path: list(impatient(ast.parse(path.read_text()))) for path in sorted((ROOT / "tests").rglob("*.py"))}
    assert len(found) > 100
    assert {path: calls for path, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("asyncio.wait_for(task, 10)", True),
        ("process.wait(timeout=0.5)", True),
        ("until(f, seconds=5)", True),
        ("eventually(look, bool, 10, 'it is there')", True),
        ("eventually(look, bool, 60, 'it is there')", False),
        ("async def f():\n  async with asyncio.timeout(5): pass", True),
        ("asyncio.wait_for(task, 20)", False),
        ("asyncio.wait({task}, timeout=1)", False),
        ("with pytest.raises(TimeoutError): asyncio.wait_for(task, 1)", False),
        ("try: asyncio.wait_for(task, 1)\nexcept TimeoutError: pass", False),
        ("asyncio.wait_for(task, LIMIT)", False),
    ],
)
def test_short_limits_are_found(text: str, *, is_found: bool) -> None:
    assert bool(list(impatient(ast.parse(text)))) == is_found
