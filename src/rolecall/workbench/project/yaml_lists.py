"""Appends an item to a list in a YAML text without changing any other character, comments included.

The new item comes after the last item of the list, with the same indentation. The result is parsed again to make sure
that it is the old content plus the item. If that is not possible, as in a list in brackets, ScaffoldError says what to
change by hand.
"""

import textwrap
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.workbench.project.errors import ScaffoldError


def append_item(text: str, key: str | None, item: str, where: str) -> str:
    """Return the text with the item appended to the list under the key (None: the document is the list).

    ``item`` is a YAML list with one item. A list that already has the item stays as it is. ``where`` is the file name
    for the error.
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
        f"{where}: cannot add an item: expected {place} in block style, with one item on each line. "
        "Change the file and try again. Nothing was written."
    )


def list_items(text: str, where: str) -> list[Any]:
    """Return the items of a document. Raise ScaffoldError if it is not a list; ``where`` is the file name."""
    try:
        found = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        raise ScaffoldError(f"{where}: {error}") from error
    if not isinstance(found, list):
        raise ScaffoldError(f"{where}: expected a list, found {type(found).__name__}")
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
    """Return the last line of the node's content; PyYAML's end of a block is after the comments that follow it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    is_at_start = node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line
    return int(node.end_mark.line) - (1 if is_at_start else 0)
