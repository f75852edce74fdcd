"""Adds items to lists in YAML texts, without a change to any other character: comments and styles stay."""

from collections.abc import Iterable

from yaml.nodes import MappingNode, Node, SequenceNode


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
