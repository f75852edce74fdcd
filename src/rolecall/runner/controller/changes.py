"""The change of an object, with its old and new state, as informers pass it to their handlers.

Predicates filter changes, triggers map them to requests, and the work queue keeps the cause of each request. A change
from a watch is complete: the watch delivers every version of the object. A change from a list is not: the informer may
have missed versions in between. So the cause of such a change has no uid and version, and it is never taken for an
own write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from rolecall.kube.field_paths import FieldPath
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.field_checksums import summarize_fields
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import Cause

_NO_FIELDS: Mapping[FieldPath, int] = MappingProxyType({})


class ChangeType(StrEnum):
    """The type of a change."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object.

    ``old`` is None if the object was not known before, ``new`` is None if it is gone. ``obj`` is the object itself; do
    not keep it. For a deletion found by a list it has only kind, names, version and labels. ``from_watch`` is False for
    a change found by a list, ``in_initial_list`` is True for one found by the informer's first list. ``fields`` maps a
    field to the position of its fingerprint in ``Entry.values``.
    """

    type: ChangeType
    gvk: GVK
    old: Entry | None
    new: Entry | None
    obj: RawObject
    from_watch: bool = True
    in_initial_list: bool = False
    fields: Mapping[FieldPath, int] = field(default_factory=lambda: _NO_FIELDS)

    @property
    def entry(self) -> Entry:
        """The new entry, or the last known entry of an object that is gone."""
        entry = self.new or self.old
        if entry is None:
            raise ValueError(f"found a change of {self.gvk} without entries, expected an old or a new one")
        return entry

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return self.entry.key

    def has_changed(self, paths: tuple[FieldPath, ...]) -> bool:
        """Return whether one of these fields was added, removed or changed, or has no fingerprint yet."""
        if self.old is None or self.new is None:
            return True
        before, after = self.old.values, self.new.values
        for path in paths:
            position = self.fields.get(path, -1)
            if not 0 <= position < min(len(before), len(after)) or before[position] != after[position]:
                return True
        return False

    def cause(self, text: str) -> Cause:
        """Return the cause of a request for this change; only one from a watch has the object's uid and version.

        The first list tells what is there and not that it has changed, so its causes have the lowest priority.
        """
        entry = self.entry
        if not self.from_watch:
            return Cause(text, priority=Priority.LOW if self.in_initial_list else Priority.MIDDLE)
        version = self.obj.get("metadata", {}).get("resourceVersion") or entry.resource_version
        return Cause(text, entry.uid, str(version), is_removal=self.new is None)

    @property
    def reason(self) -> str:
        """A description for users, for example ``Pod default/web: status.phase`` or ``Pod default/web deleted``."""
        subject = f"{self.gvk.kind} {self.key}"
        if self.old is None or self.new is None:
            verb = "found at startup" if self.in_initial_list else "created"
            return f"{subject} {'deleted' if self.new is None else verb}"
        fields = self.old.outline.changed_fields(self.new.outline)
        return f"{subject}: {summarize_fields(fields) if fields else 'updated without a visible change'}"

    def __str__(self) -> str:
        """Return a short form, for example ``Pod default/web modified``."""
        return f"{self.gvk.kind} {self.key} {self.type}"
