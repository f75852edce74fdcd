"""Renders the templates of the scaffold: files below ``templates``, with ``%{value}`` as placeholders.

A tree of templates becomes a tree of files. In paths, ``_name_`` and ``_plural_`` stand for these values, and ``dot.``
for a leading dot. A missing value is a ``KeyError``: a bug.
"""

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rolecall.runner.record.files import SUFFIX
from rolecall.runner.record.lines import digest_of, to_line

FOLDER = Path(__file__).parent / "templates"
_ENDING = ".tmpl"


class _Text(string.Template):
    """A template whose placeholders do not collide with those of make, shells and Ansible."""

    delimiter: ClassVar[str] = "%"


def render_tree(tree: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the files of a tree, by their path in the project."""
    top = FOLDER / tree
    texts = {
        _path(source.relative_to(top), values): _rendered(source, values) for source in sorted(top.rglob(f"*{_ENDING}"))
    }
    return {path: sealed(text) if path.endswith(SUFFIX) else text for path, text in texts.items()}


def render_snippet(name: str, values: Mapping[str, str]) -> str:
    """Return a part of a file, without a newline at the end."""
    return _rendered(FOLDER / "snippets" / f"{name}{_ENDING}", values).rstrip("\n")


def sealed(record: str) -> str:
    """Return a record with the digest of its lines, which have other names than those that were recorded."""
    *lines, end = record.splitlines()
    last = to_line({**json.loads(end), "digest": digest_of(lines)})
    return "".join(f"{line}\n" for line in (*lines, last))


def _path(template: Path, values: Mapping[str, str]) -> str:
    name = template.name.removesuffix(_ENDING)
    path = (template.parent / (name[3:] if name.startswith("dot.") else name)).as_posix()
    return path.replace("_name_", values.get("name", "")).replace("_plural_", values.get("plural", ""))


def _rendered(source: Path, values: Mapping[str, str]) -> str:
    return _Text(source.read_text(encoding="utf-8")).substitute(values)
