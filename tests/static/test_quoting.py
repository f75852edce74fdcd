"""Texts with a syntax: what code puts into a URL path, a field selector, or a regular expression is quoted there.

Names of objects may have any character but ``/`` and ``%``, so a name without quotes would be read as syntax.
``tests/support/names.py`` has such names for the tests of values that aren't written as one expression.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.static.repository import ROOT

SOURCE = ROOT / "src/rolecall"
_URL_PATH = re.compile(r"/namespaces/|/apis?/v?[0-9]|^/apis?/")
_FIELD_SELECTOR = re.compile(r"(?:^|[?&,])(?:fieldSelector|metadata\.\w+|involvedObject\.\w+)=$")
_REGULAR = frozenset(f"re.{name}" for name in ("compile", "sub", "search", "match", "fullmatch", "split", "findall"))
_QUOTES = ("path_segment(", "re.escape(", "quote(", "urlencode(", "field_requirement(")
_CONSTANT = re.compile(r"_?[A-Z][A-Z_]*(\.pattern)?|'.*'\.join\((map\(re\.escape, \w+\)|_?[A-Z_]+)\)|field")
ALLOWED = frozenset(
    {
        ("kube/bodies.py", "pattern"),  # one of a table
        ("kube/discovery.py", "scope"),  # of quoted segments
        *(
            ("workbench/controlplane/cluster.py", value)
            for value in ("self._namespace", "selector", "self._name", "path")
        ),
    }
)
"""Values that no user writes: those of the control plane are the names of its own pod."""


def unquoted(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the expression of each value that is part of such a text without quotes."""
    tree = ast.parse(source)
    patterns = {
        each
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in _REGULAR and call.args
        for each in ast.walk(call.args[0])
        if isinstance(each, ast.JoinedStr)
    }
    for text in ast.walk(tree):
        if isinstance(text, ast.JoinedStr):
            before = ""
            for part in text.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                    continue
                has_syntax = text in patterns or _URL_PATH.search(before) or _FIELD_SELECTOR.search(before)
                value = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ast.unparse(part)
                if has_syntax and not value.startswith(_QUOTES) and not _CONSTANT.fullmatch(value):
                    yield text.lineno, value


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('path = f"/api/v1/namespaces/{namespace}/pods/{path_segment(name)}"', ["namespace"]),
        ('path = f"/apis/{group}"', ["group"]),
        ('selector = f"metadata.name={name}"', ["name"]),
        ('path = f"{base}/events?fieldSelector={selector}"', ["selector"]),
        ('word = re.compile(rf"\\b{name}\\b")', ["name"]),
        ('word = re.compile(rf"\\b{re.escape(name)}{_REST}\\b"); text = f"{name}"', []),
    ],
)
def test_unquoted_value_is_found(source: str, found: list[str]) -> None:
    assert [value for _, value in unquoted(source)] == found


def test_values_in_texts_with_a_syntax_are_quoted() -> None:
    places = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    found = [(place, line, value) for place, text in places.items() for line, value in unquoted(text)]
    assert not [each for each in found if (each[0], each[2]) not in ALLOWED], f"quote these, as {_QUOTES} do"
    assert {(place, value) for place, _, value in found} >= ALLOWED - {("kube/discovery.py", "scope")}
