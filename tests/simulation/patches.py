"""JSON merge patches and JSON patches, as the API server applies them with version 4 of evanphx/json-patch.

It deviates from RFC 7386 and 6902: a merge patch removes null fields also from objects in lists, ``replace`` creates a
missing field, and negative indices count from the end of a list. The functions never change their arguments.
"""

from typing import Any

from tests.simulation.storage import copied


class MalformedPatchError(Exception):
    """A body that isn't a patch."""


class UnappliedPatchError(Exception):
    """A patch that doesn't fit the object: a path doesn't exist, or a test fails."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied: null removes a field, everything but a mapping replaces it."""
    if not isinstance(target, dict):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        return copied(patch)
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _without_nulls(value: Any) -> Any:
    """Return a copy without null fields; a null in a list stays."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def json_patch(target: Any, operations: Any) -> Any:
    """Return the target with the operations applied. Raise MalformedPatchError and UnappliedPatchError."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise MalformedPatchError("expected a list of operations")
    document = copied(target)
    for operation in operations:
        _apply(document, operation)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> None:
    kind, value = operation.get("op"), copied(operation.get("value"))
    if kind not in ("add", "copy", "move", "remove", "replace", "test"):
        raise UnappliedPatchError(f"unexpected kind: {kind}")
    if kind in ("copy", "move"):
        container, key = _place(document, operation.get("from"))
        value = copied(_get(container, key))
        if kind == "move":
            _remove(container, key)
    container, key = _place(document, operation.get("path"))
    match kind:
        case "add" | "copy" | "move":
            _add(container, key, value)
        case "remove":
            _remove(container, key)
        case "replace":
            _get(container, key)
            container[key if isinstance(container, dict) else _index(container, key)] = value
        case "test" if _get(container, key) != value:
            raise UnappliedPatchError(f"testing value {operation['path']} failed")


def _place(document: Any, path: Any) -> tuple[Any, str]:
    """Return the mapping or list that a JSON pointer leads to, and the key in it."""
    if not isinstance(path, str) or "/" not in path:
        raise UnappliedPatchError(f"invalid path {path!r}")
    _, *parents, key = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
    for part in parents:
        document = _get(document, part)
        if not isinstance(document, dict | list):
            raise UnappliedPatchError(f"missing path {path}")
    return document, key


def _get(container: Any, key: str) -> Any:
    """Return a value; that of a missing field is null."""
    return container.get(key) if isinstance(container, dict) else container[_index(container, key)]


def _add(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        container.insert(_index(container, key, length=len(container) + 1), value)


def _remove(container: Any, key: str) -> None:
    if isinstance(container, list):
        del container[_index(container, key)]
    elif key in container:
        del container[key]
    else:
        raise UnappliedPatchError(f"unable to remove the missing key {key}")


def _index(items: list[Any], key: str, length: int | None = None) -> int:
    """Return the index that a key means in a list, or in one of another length."""
    length = len(items) if length is None else length
    try:
        index = int(key)
    except ValueError as error:
        raise UnappliedPatchError(f"{key!r} isn't an index") from error
    if not -length <= index < length:
        raise UnappliedPatchError(f"invalid index {index}")
    return index % length
