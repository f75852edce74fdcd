"""Unit and integration tests share code in ``tests/support`` and import nothing from each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.static.repository import ROOT

FORBIDDEN = {
    "unit": ("tests.integration",),
    "processes": ("tests.integration",),
    "integration": ("tests.unit", "tests.processes"),
    "support": ("tests.unit", "tests.processes", "tests.integration"),
}
"""The packages that a directory of ``tests`` doesn't import."""


def imported(text: str) -> Iterator[str]:
    """Yield the modules that a text imports, in functions too, as absolute names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


def forbidden(directory: str, text: str) -> list[str]:
    """Return the modules that a text in this directory imports although it isn't permitted to."""
    packages = tuple(f"{package}." for package in FORBIDDEN[directory])
    return [name for name in imported(text) if f"{name}.".startswith(packages)]


@pytest.mark.parametrize("directory", FORBIDDEN)
def test_shared_code_is_in_support(directory: str) -> None:
    modules: dict[Path, list[str]] = {
        path.relative_to(ROOT): forbidden(directory, path.read_text())
        for path in sorted((ROOT / "tests" / directory).rglob("*.py"))
    }
    assert modules
    assert {path: names for path, names in modules.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from tests.support.world import World", []),
        ("from tests.integrations import a", []),
        ("import tests.integration", ["tests.integration"]),
        ("from tests import integration", ["tests.integration"]),
        ("def f():\n    from tests.integration.shell import run", ["tests.integration.shell.run"]),
    ],
)
def test_imports_are_found(text: str, names: list[str]) -> None:
    assert forbidden("unit", text) == names
