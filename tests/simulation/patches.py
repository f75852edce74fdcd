"""JSON merge patches (RFC 7386) and JSON patches (RFC 6902), as the API server applies them.

The functions never change their arguments.
"""

from typing import Any

from tests.simulation.storage import copied


class MalformedPatchError(Exception):
    """A body that isn't a patch."""


class UnappliedPatchError(Exception):
    """A patch that doesn't fit the object: a path doesn't exist, or a test fails."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied: null removes a field, everything but a mapping replaces it."""
    if not isinstance(patch, dict):
        return copied(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """Return the target with the operations applied. Raise MalformedPatchError and UnappliedPatchError."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise MalformedPatchError("expected a list of operations")
    document = {"": copied(target)}
    for operation in operations:
        _apply(document, operation)
    return document[""]


def _apply(document: dict[str, Any], operation: dict[str, Any]) -> None:
    path = _parts(operation.get("path"))
    match operation.get("op"):
        case "add":
            _add(document, path, copied(_value(operation)))
        case "replace":
            _found(document, path)
            _remove(document, path)
            _add(document, path, copied(_value(operation)))
        case "remove":
            _remove(document, path)
        case "test":
            if _found(document, path, missing_is_null=True) != operation.get("value"):
                raise UnappliedPatchError(f"testing value {operation['path']} failed")
        case "move":
            source = _parts(operation.get("from"))
            value = _found(document, source)
            _remove(document, source)
            _add(document, path, value)
        case "copy":
            _add(document, path, copied(_found(document, _parts(operation.get("from")))))
        case other:
            raise UnappliedPatchError(f"unexpected kind: {other}")


def _value(operation: dict[str, Any]) -> Any:
    return operation.get("value")


def _parts(path: Any) -> list[str]:
    """Return the keys that a JSON pointer names, below the document's own key."""
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise UnappliedPatchError(f"invalid path {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]


def _index(items: list[Any], part: str, *, is_new: bool = False) -> int:
    if is_new and part == "-":
        return len(items)
    if not part.isdecimal() or int(part) >= len(items) + is_new:
        raise UnappliedPatchError(f"invalid index {part!r}")
    return int(part)


def _found(document: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    """Return the value at a path; a missing last key is an error, or null."""
    for number, part in enumerate(path):
        if isinstance(document, list):
            document = document[_index(document, part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, dict) and missing_is_null and number == len(path) - 1:
            return None
        else:
            raise UnappliedPatchError(f"missing path {'/'.join(path)}")
    return document


def _add(document: Any, path: list[str], value: Any) -> None:
    parent = _found(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(_index(parent, path[-1], is_new=True), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise UnappliedPatchError(f"missing path {'/'.join(path)}")


def _remove(document: Any, path: list[str]) -> None:
    _found(document, path)
    parent = _found(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1])]
    else:
        del parent[path[-1]]
