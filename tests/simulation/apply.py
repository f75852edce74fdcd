"""Server-side apply: which field manager owns which fields, and what an apply changes.

Fields are in the format of ``fieldsV1``. An object has ``managedFields`` from its first apply on; then the manager
``before-first-apply`` owns what it had before. Lists are atomic, except owner references, which merge by uid, and
finalizers, which are a set.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rolecall.kube.references import RawObject
from tests.simulation.storage import copied

Path = tuple[str, ...]

_SELF: Final = frozenset({"apiVersion", "kind"})
_OF_SYSTEM: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
    | {"deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}
)
_OWNERS, _FINALIZERS = ("f:metadata", "f:ownerReferences"), ("f:metadata", "f:finalizers")
_BEFORE: Final = "before-first-apply"


class ApplyConflictError(Exception):
    """Another manager owns a field and has given it another value; ``paths`` are these fields."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths = tuple(paths)


def leaves(obj: RawObject) -> dict[Path, Any]:
    """Return the values of an object by their paths, without what only the API server sets."""
    content = {name: value for name, value in obj.items() if name not in _SELF}
    metadata = content.get("metadata") or {}
    content["metadata"] = {name: value for name, value in metadata.items() if name not in _OF_SYSTEM}
    return dict(_leaves((), content))


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if path == _OWNERS and isinstance(value, list):
        for item in value:
            yield (*path, f"k:{json.dumps({'uid': item.get('uid')}, separators=(',', ':'))}"), item
    elif path == _FINALIZERS and isinstance(value, list):
        for item in value:
            yield (*path, f"v:{json.dumps(item)}"), item
    elif isinstance(value, dict) and (value or len(path) == 0):
        for name, item in value.items():
            yield from _leaves((*path, f"f:{name}"), item)
    elif path != ("f:metadata",):
        yield path, value


def applied(live: RawObject, desired: RawObject, manager: str, *, is_forced: bool, now: str) -> RawObject:
    """Return an object after an apply, with its ``managedFields``; ``live`` has only its metadata if it is new.

    Raises ApplyConflictError.
    """
    current, wanted = leaves(live), leaves(desired)
    managers = _managers(live, current)
    own = managers.pop((manager, "Apply"), set())
    others: set[Path] = set().union(*managers.values())
    conflicts = [path for path in wanted if path in others and path in current and current[path] != wanted[path]]
    if conflicts and not is_forced:
        raise ApplyConflictError([".".join(each.partition(":")[2] for each in path) for path in conflicts])
    for fields in managers.values():
        fields.difference_update(conflicts)
    others = set().union(*managers.values())
    left = {path: value for path, value in current.items() if path in wanted or path not in own or path in others}
    result = _object(live, left | wanted)
    managers[manager, "Apply"] = set(wanted)
    return _with_managers(result, live, managers, now)


def updated(old: RawObject, new: RawObject, manager: str, now: str) -> RawObject:
    """Return the new state of an object after an ordinary write of a manager, with its ``managedFields``."""
    if not old["metadata"].get("managedFields"):
        return new
    before, after = leaves(old), leaves(new)
    managers = _managers(old, before)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    removed = before.keys() - after.keys()
    for fields in managers.values():
        fields.difference_update(changed, removed)
    managers.setdefault((manager, "Update"), set()).update(changed)
    return _with_managers(new, old, managers, now)


def _managers(obj: RawObject, current: dict[Path, Any]) -> dict[tuple[str, str], set[Path]]:
    """Return the fields of each manager and operation."""
    entries = obj["metadata"].get("managedFields") or ()
    if not entries:
        return {(_BEFORE, "Update"): set(current)} if current else {}
    return {(each["manager"], each["operation"]): set(_paths((), each["fieldsV1"])) for each in entries}


def _paths(path: Path, fields: RawObject) -> Iterator[Path]:
    for name, inner in fields.items():
        if name == ".":
            continue
        inner_path = (*path, name)
        if not inner or name.startswith(("k:", "v:")):
            yield inner_path
        else:
            yield from _paths(inner_path, inner)


def _with_managers(obj: RawObject, old: RawObject, managers: dict[tuple[str, str], set[Path]], now: str) -> RawObject:
    """Return an object with its managers; an entry that hasn't changed keeps its time."""
    known = {(each["manager"], each["operation"]): each for each in old["metadata"].get("managedFields") or ()}
    entries = []
    for (manager, operation), paths in managers.items():
        if not paths:
            continue
        fields = _fields(paths)
        entry = known.get((manager, operation))
        if entry is None or entry["fieldsV1"] != fields:
            entry = {"manager": manager, "operation": operation, "apiVersion": obj["apiVersion"], "time": now}
            entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
        entries.append(entry)
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata | ({"managedFields": entries} if entries else {})}


def _fields(paths: set[Path]) -> RawObject:
    root: RawObject = {}
    for path in sorted(paths):
        inner = root
        for name in path:
            inner = inner.setdefault(name, {})
    return root


def _object(live: RawObject, values: dict[Path, Any]) -> RawObject:
    """Return an object with these values, and what only the API server sets."""
    metadata = {name: value for name, value in live["metadata"].items() if name in _OF_SYSTEM}
    result: RawObject = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata}
    for path, value in values.items():
        inner: Any = result
        *parents, last = path
        for name, following in zip(parents, path[1:], strict=True):
            is_list = following.startswith(("k:", "v:"))
            inner = inner.setdefault(name.removeprefix("f:"), [] if is_list else {})
        if last.startswith(("k:", "v:")):
            inner.append(copied(value))
        else:
            inner[last.removeprefix("f:")] = copied(value)
    return result
