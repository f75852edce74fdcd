"""The YAML files of a project: finds them, reads parts of their values, and adds items to their lists.

An addition changes no other character: comments and styles stay.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, SequenceNode


def yaml_files(*paths: Path) -> Iterator[Path]:
    """Yield these files, and every YAML file below these directories."""
    for path in paths:
        if path.is_file():
            yield path
        else:
            yield from sorted(each for each in path.rglob("*") if each.suffix in (".yml", ".yaml") and each.is_file())


def below(value: Any, *keys: str) -> dict[str, Any]:
    """Return the mapping under these keys of a value, empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def listed(value: Any, *keys: str) -> list[Any]:
    """Return the list under these keys of a value, empty if there is none."""
    *above, last = keys
    found = below(value, *above).get(last)
    return found if isinstance(found, list) else []


def with_lines(text: str, at: int, added: Iterable[str], *, indent: int) -> str:
    """Return a text with lines added before the line with this number (from 0), indented, with the text's newlines."""
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    if at > 0:
        lines[at - 1] = lines[at - 1].rstrip("\r\n") + newline
    lines[at:at] = [f"{' ' * indent if line else ''}{line}{newline}" for line in added]
    return "".join(lines)


def last_line(node: Node) -> int:
    """Return the last line of the node's content; PyYAML's end of a block is after the comments that follow it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return last_line(last[1] if isinstance(last, tuple) else last)
    is_at_start = node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line
    return int(node.end_mark.line) - (1 if is_at_start else 0)
