"""Entries and changes for tests of predicates and triggers."""

from typing import Any

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.controller.store import Change, Entry

POD = GVK("", "v1", "Pod")


def make_object(name: str = "web", namespace: str = "default", **fields: Any) -> RawObject:
    """Return an object; ``fields`` are added to its metadata, except for spec and status."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"} | (
        {"namespace": namespace} if namespace else {}
    )
    body = {key: fields.pop(key) for key in ("spec", "status") if key in fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | fields} | body


def make_change(
    old: RawObject | None, new: RawObject | None, fields: tuple[FieldPath, ...] = (), *, from_watch: bool = True
) -> Change:
    """Return the change from one object to another; None means that the object does not exist."""
    before = None if old is None else Entry.of(old, fields)
    after = None if new is None else Entry.of(new, fields)
    positions = {path: index for index, path in enumerate(fields)}
    return Change(POD, before, after, new or old or {}, from_watch=from_watch, fields=positions)
