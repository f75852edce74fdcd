"""What an informer tells its consumers: one change of one object, with what was known before and what is known now.

Predicates decide by a change whether it counts, triggers find the requests that it concerns, and the work queue keeps
its cause. Changes that a watch stream brought are *live*: each version of the object came by. Those that only a list
showed are not: versions in between were missed, so such a change carries no identity by which it could pass for an
own write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from rolecall.controller.field_paths import FieldPath
from rolecall.controller.source.outline import told
from rolecall.controller.source.store import Entry
from rolecall.controller.work_queue import Cause
from rolecall.kube.references import GVK, ObjectKey, RawObject

_NO_FIELDS: Mapping[FieldPath, int] = MappingProxyType({})


class ChangeType(StrEnum):
    """What happened to an object."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object.

    ``old`` is None when the object was not known before, ``new`` when it is gone. ``obj`` is the object of this change,
    not to be kept; for a deletion that only a list showed it has no more than names, version and labels. ``initial``
    marks the objects of the informer's first list. ``fields`` says where in an entry's values a field's fingerprint is.
    """

    type: ChangeType
    gvk: GVK
    old: Entry | None
    new: Entry | None
    obj: RawObject
    live: bool = True
    initial: bool = False
    fields: Mapping[FieldPath, int] = field(default_factory=lambda: _NO_FIELDS)

    @property
    def entry(self) -> Entry:
        """What is known now, or was known last of an object that is gone."""
        entry = self.new or self.old
        if entry is None:
            raise ValueError(f"a change of {self.gvk} without an old and a new entry")
        return entry

    @property
    def key(self) -> ObjectKey:
        """Where the object lies."""
        return self.entry.key

    def has_changed(self, paths: tuple[FieldPath, ...]) -> bool:
        """Tell whether one of these fields is new, gone or different; a field that was not looked at before counts."""
        if self.old is None or self.new is None:
            return True
        before, after = self.old.values, self.new.values
        for path in paths:
            position = self.fields.get(path, -1)
            if not 0 <= position < min(len(before), len(after)) or before[position] != after[position]:
                return True
        return False

    def cause(self, text: str) -> Cause:
        """Make the cause of a request that follows from this change; only a live one has the object's identity."""
        entry = self.entry
        if not self.live:
            return Cause(text)
        version = self.obj.get("metadata", {}).get("resourceVersion") or entry.resource_version
        return Cause(text, entry.uid, str(version), is_removal=self.new is None)

    @property
    def reason(self) -> str:
        """Why it may start a reconcile, for people: ``Pod default/web: status.phase``, ``Pod default/web deleted``."""
        subject = f"{self.gvk.kind} {self.key}"
        if self.old is None or self.new is None:
            found = "found at the start" if self.initial else "created"
            return f"{subject} {'deleted' if self.new is None else found}"
        fields = self.old.outline.changed(self.new.outline)
        return f"{subject}: {told(fields) if fields else 'written without a change'}"

    def __str__(self) -> str:
        """Give what happened in short, for example ``Pod default/web modified``."""
        return f"{self.gvk.kind} {self.key} {self.type}"
