"""Adds an item to a list in a YAML text and leaves every other character of it as it is, comments too.

The new item comes after the last one of the list, with its indentation. The result is read again: it must say what the
text said, and the item. Where that cannot be had, as in a list in brackets, ScaffoldError tells what to change by hand.
"""

import textwrap
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.scaffold.errors import ScaffoldError


def append_item(text: str, key: str | None, item: str, where: str) -> str:
    """Return the text with the item, a YAML list of one, in the list under the key (None: the document is the list).

    A list that has the item already stays as it is. ``where`` is the file that the text is of, for the error.
    """
    try:
        before, [added] = yaml.safe_load(text), yaml.safe_load(item)
        if added in ((before if key is None else before.get(key)) or ()):
            return text
        changed = _inserted(text, _list_node(text, key), key, item)
        if changed is not None and yaml.safe_load(changed) == _expected(before, key, added):
            return changed
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ScaffoldError(f"{where}: {error}") from error
    place = f"the list {key!r}" if key else "the list"
    raise ScaffoldError(
        f"{where}: found no place for one item more, expected {place} with an item per line (and no line for none). "
        "Write it so and try again; nothing was written."
    )


def list_items(text: str, where: str) -> list[Any]:
    """Return the items of a document that is a list. Raises ScaffoldError if it is none; ``where`` is the file."""
    try:
        found = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        raise ScaffoldError(f"{where}: {error}") from error
    if not isinstance(found, list):
        raise ScaffoldError(f"{where}: found {type(found).__name__}, expected a list")
    return found


def _expected(before: Any, key: str | None, added: Any) -> Any:
    if key is None:
        return [*(before or []), added]
    return {**before, key: [*(before.get(key) or []), added]}


def _list_node(text: str, key: str | None) -> Node | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if key is None or not isinstance(root, MappingNode):
        return root if key is None else None
    return next((value for name, value in root.value if name.value == key), None)


def _inserted(text: str, node: Node | None, key: str | None, item: str) -> str | None:
    lines = text.splitlines()
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        at, indent = _last_line(node) + 1, node.start_mark.column
    elif isinstance(node, ScalarNode) and key is not None:
        at, indent = node.start_mark.line + 1, 2
    elif key is None and (node is None or isinstance(node, ScalarNode)):
        at, indent = len(lines), 0
    else:
        return None
    is_entry = key is None and node is not None and not isinstance(node, ScalarNode)
    gap = [""] if is_entry and "\n" in item else []
    return "\n".join([*lines[:at], *gap, *textwrap.indent(item, " " * indent).splitlines(), *lines[at:]]) + "\n"


def _last_line(node: Node) -> int:
    """Return the last line of what the node says; the end of a block in PyYAML is past the comments after it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    is_at_start = node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line
    return int(node.end_mark.line) - (1 if is_at_start else 0)
