"""Fingerprints of the functions that patches replace or rely on, and whether what is installed matches them.

A function is named ``module:qualified.name``; a class, an assignment, and an imported name count too. Its fingerprint
is a digest of its syntax tree without docstrings, comments, and formatting, equal on every supported Python.
``fingerprints.json`` has the fingerprints of the releases that the patches are tested with; ``python -m
tools.fingerprints`` writes it. Nothing here imports what it inspects: that could fail, and takes a second.

A file with the bytes of a tested release isn't parsed: its SHA-256 is sufficient. Inspecting everything then takes 20
milliseconds; parsing takes about as long for each changed file.
"""

import ast
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ABSENT = "absent"
"""The fingerprint of a function that a release doesn't have."""

UNREADABLE = "unreadable"
"""The fingerprint of a function in a file that this version of Python can't parse."""

DATA = Path(__file__).with_suffix(".json")
_DIGEST_LENGTH = 16
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
_COMPOUND = (ast.If, ast.Try, ast.With)
"""Statements whose bodies belong to the scope around them."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The known fingerprints, by function and by file; releases are strings such as ``ansible-core 2.19.14``.

    ``functions`` has the releases of each fingerprint of each function. ``files`` has, for each module, the releases
    with a file of a SHA-256.
    """

    functions: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    files: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path = DATA) -> Self:
        """Read a data file. Raises OSError and ValueError."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def releases_of(self, functions: Iterable[str], search_path: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
        """Return the installed fingerprint of each function, and the tested releases that have the same one."""
        by_module: dict[str, list[str]] = defaultdict(list)
        for function in functions:
            module, _, name = function.partition(":")
            by_module[module].append(name)
        found = {}
        for module, names in by_module.items():
            source = source_of(module, search_path)
            same = self.files.get(module, {}).get(file_digest(source))
            digests = {} if same else digests_of(source, names)
            for name in names:
                known = self.functions.get(f"{module}:{name}", {})
                as_released = (each for each, releases in known.items() if same and same[0] in releases)
                digest = digests[name] if digests else next(as_released, ABSENT)
                found[f"{module}:{name}"] = digest, known.get(digest, [])
        return found


def source_of(module: str, search_path: Sequence[str]) -> bytes | None:
    """Return the source of a module below the first directory that has it; None if there is none."""
    relative = module.replace(".", "/")
    for directory in search_path:
        for path in (f"{directory}/{relative}.py", f"{directory}/{relative}/__init__.py"):
            try:
                return Path(path).read_bytes()
            except OSError:
                continue
    return None


def file_digest(source: bytes | None) -> str:
    """Return the fingerprint of a whole file; `ABSENT` for None."""
    return ABSENT if source is None else hashlib.sha256(source).hexdigest()[:_DIGEST_LENGTH]


def digests_of(source: bytes | None, names: Iterable[str]) -> dict[str, str]:
    """Return the fingerprint of each function, class, assignment, or import of a module; None is a missing module.

    The fingerprint of a name is `ABSENT` if the module doesn't define it, and `UNREADABLE` if this Python can't parse
    the module. All definitions of a name count, for example both branches of an ``if``.
    """
    try:
        tree = ast.parse(source or b"")
    except (SyntaxError, ValueError):
        return dict.fromkeys(names, UNREADABLE)
    return {name: _digest_of(tree, name) for name in names}


def _digest_of(tree: ast.Module, name: str) -> str:
    scopes: list[ast.AST] = [tree]
    *outer, last = name.split(".")
    for each in outer:
        scopes = [found for scope in scopes for found in _definitions(scope, each) if isinstance(found, ast.ClassDef)]
    definitions = [found for scope in scopes for found in _definitions(scope, last)]
    if not definitions:
        return ABSENT
    text = json.dumps([_canonical(found) for found in definitions], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]


def _definitions(scope: ast.AST, name: str) -> Iterator[ast.AST | list[str]]:
    """Yield the statements that define a name in the body of a module or class; an import as its parts."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (*_COMPOUND, ast.ExceptHandler)):
            yield from _definitions(node, name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name == name:
                yield node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _imports(node, name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                yield node


def _imports(node: ast.Import | ast.ImportFrom, name: str) -> Iterator[list[str]]:
    module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        if name == (alias.asname or alias.name):
            yield [module, alias.name]


def _canonical(value: Any) -> Any:
    """Return a tree as lists and strings that are the same on every version of Python.

    ``ast.dump`` isn't: it shows fields that a newer Python has added, and differs in which empty ones it leaves out.
    """
    if isinstance(value, ast.JoinedStr):
        return ["JoinedStr", [_canonical(each) for each in _joined(value.values)]]
    if isinstance(value, ast.Constant):
        return [type(value.value).__name__, ascii(value.value)]
    if isinstance(value, ast.AST):
        fields = ((name, _field(value, name)) for name in value._fields if name not in _IGNORED_FIELDS)
        return [type(value).__name__, *([name, _canonical(each)] for name, each in fields if each not in (None, []))]
    return [_canonical(each) for each in value] if isinstance(value, list) else value


def _field(node: ast.AST, name: str) -> Any:
    value = getattr(node, name, None)
    if name == "body" and isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        return value[1:] if value else value
    return value


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Merge the texts of an f-string, which versions of Python split differently."""
    merged: list[ast.expr] = []
    for value in values:
        if isinstance(value, ast.Constant) and merged and isinstance(last := merged[-1], ast.Constant):
            merged[-1] = ast.Constant(str(last.value) + str(value.value))
        else:
            merged.append(value)
    return [each for each in merged if not (isinstance(each, ast.Constant) and each.value == "")]
