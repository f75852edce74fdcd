"""The order in a module of ``src/rolecall``: constants first, then classes and functions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.static.repository import ROOT

SOURCE = ROOT / "src" / "rolecall"
CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")


def late_constants(text: str) -> Iterator[str]:
    """Yield the constants after the first class or function that need no name defined by a class or function."""
    defined: set[str] = set()
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(statement.name)
            continue
        names = list(assigned_names(statement))
        if defined & {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}:
            defined.update(names)
        elif defined:
            yield from filter(CONSTANT.fullmatch, names)


def assigned_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns, of tuples too."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for node in (each for target in targets for each in ast.walk(target)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):  # not the name in TABLE[key]
                yield node.id


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_constants_precede_classes_and_functions(path: Path) -> None:
    assert list(late_constants(path.read_text())) == []


@pytest.mark.parametrize(
    ("text", "late"),
    [
        ("A = 1\ndef f(): ...\n", []),
        ("def f(): ...\nA = 1\n", ["A"]),
        ("class C: ...\n_A: int = 1\n", ["_A"]),
        ("async def f(): ...\n_A, _B = 1, 2\n", ["_A", "_B"]),
        ("def f(): ...\nlogger = 1\nReport = str\n", []),
        ("def f(): ...\nA = f()\nB = (A,)\nC = 1\n", ["C"]),
        ("def f(): ...\nTABLE[1] = 1\n", []),
        ("class C: ...\nA: dict[str, C] = {}\n", []),
    ],
)
def test_late_constants_are_found(text: str, late: list[str]) -> None:
    assert list(late_constants(text)) == late
