"""Two states of an object as a diff of YAML that a person reads.

What the API server keeps for itself is left out. A changed line stands below the lines that say what it belongs to, so
that a diff needs no other context.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject

SERVER_FIELDS: Final = frozenset(
    {"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"}
)
"""The fields of the metadata that the API server sets."""

_WIDTH: Final = 1000
_LONG: Final = 2000
_Line = tuple[str, str]
"""A sign, and a line of YAML."""


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the fast one, where libyaml is
    """Writes each value in full, and texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def without_server_fields(obj: Mapping[str, Any]) -> RawObject:
    """Return an object without what the API server keeps in its metadata."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return dict(obj)
    return {
        **obj,
        "metadata": {key: value for key, value in metadata_of(dict(obj)).items() if key not in SERVER_FIELDS},
    }


def as_yaml(value: Mapping[str, Any]) -> list[str]:
    """Return the lines of a value, a text of several lines as a block of its own."""
    text = yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.removesuffix("...\n").splitlines()  # the end of a document, after a block that ends in empty lines


def diff_lines(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    """Return what differs, each line after ``+`` or ``-``, or after a space if others belong to it."""
    lines = list(_merged([] if not before else as_yaml(before), [] if not after else as_yaml(after)))
    return [f"{lines[index][0]}{lines[index][1]}" for index in sorted(_shown(lines))]


def _merged(old: list[str], new: list[str]) -> Iterator[_Line]:
    is_long = max(len(old), len(new)) > _LONG  # lines that are there many times would take quadratic time
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=is_long)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            yield from ((" ", line) for line in old[old_start:old_end])
        else:
            yield from (("-", line) for line in old[old_start:old_end])
            yield from (("+", line) for line in new[new_start:new_end])


def _shown(lines: list[_Line]) -> set[int]:
    """Return the indexes of the changed lines and of those that they belong to, in the state that has the line."""
    shown: set[int] = set()
    above: dict[str, list[tuple[int, int]]] = {"-": [], "+": []}
    for index, (sign, line) in enumerate(lines):
        indent = _indent(line)
        for state in ("-", "+") if sign == " " else (sign,):
            parents = above[state]
            while line and parents and parents[-1][0] >= indent:
                parents.pop()
            if sign != " ":
                shown |= {index, *(parent for _, parent in parents)}
            if line:
                parents.append((indent, index))
    return shown


def _indent(line: str) -> int:
    """Return how far right a line stands; an item of a list is further right than the key above it."""
    content = line.lstrip()
    return 2 * (len(line) - len(content)) + content.startswith("- ")
