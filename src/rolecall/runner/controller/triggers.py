"""Triggers: map a change of another object to requests for the primaries that it affects.

A primary may refer to other objects by labels or by name, in its own fields, or the others name it as their owner. The
references of all primaries are kept in an index, which is updated when a primary changes. So a change of another object
needs only a lookup, however many primaries there are. Dependents, which name their primary by owner reference or
annotation, need no index: see ``requests_for_owner`` and ``requests_for_annotation``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rolecall.kube.field_paths import FieldPath
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.changes import Change
from rolecall.runner.controller.reference_index import ReferenceIndex, label_terms, name_attribute, name_terms
from rolecall.runner.controller.store import Entry


class ReferenceType(StrEnum):
    """How a primary and another object refer to each other."""

    OWNER = "owner"
    LABELS = "labels"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Trigger:
    """One entry of ``triggers``: the other kind, and the reference between its objects and a primary.

    ``path`` is the path in the primary to the labels or names of the other objects; an owner trigger has none. ``on``
    are fields of the other object: an update triggers only if one of them changed, or if it added or removed the
    reference.
    """

    gvk: GVK
    reference: ReferenceType
    path: FieldPath | None = None
    on: tuple[FieldPath, ...] = ()

    def __post_init__(self) -> None:
        """Validate that the trigger has a path if, and only if, its reference needs one."""
        if (self.path is None) != (self.reference is ReferenceType.OWNER):
            expected = "no path" if self.path is not None else "a path into the primary"
            raise ValueError(f"trigger on {self.gvk} by {self.reference}: expected {expected}, found {self.path!r}")


class TriggerIndex:
    """The references of all primaries of one kind for one trigger."""

    def __init__(self, trigger: Trigger, primary_gvk: GVK) -> None:
        self.trigger = trigger
        self._primary_gvk = primary_gvk
        self._references = ReferenceIndex()
        self._uids: dict[ObjectKey, str] = {}

    def update_primary(self, key: ObjectKey, obj: RawObject) -> None:
        """Update the references of a primary."""
        if self.trigger.path is None:
            self._uids[key] = uid_of(obj)
            return
        values = self.trigger.path.values(obj)
        terms = label_terms(values) if self.trigger.reference is ReferenceType.LABELS else name_terms(values)
        self._references.put(key, terms)

    def remove_primary(self, key: ObjectKey) -> None:
        """Remove the references of a primary."""
        self._uids.pop(key, None)
        self._references.remove(key)

    def requests_for(self, change: Change) -> Iterator[tuple[ObjectKey, str]]:
        """Yield each primary that the change affects, once, with the reason for users."""
        before = self._referring_primaries(change.old)
        after = before if _has_same_references(change) else self._referring_primaries(change.new)
        is_relevant = not self.trigger.on or change.has_changed(self.trigger.on)
        affected = sorted(before | after if is_relevant else before ^ after)
        reason = change.reason if affected else ""
        for key in affected:
            yield key, reason

    def _referring_primaries(self, entry: Entry | None) -> set[ObjectKey]:
        if entry is None:
            return set()
        if self.trigger.reference is ReferenceType.OWNER:
            owners = _owner_keys(entry, self._primary_gvk)
            return {key for key, uid in owners if self._uids.get(key) == uid}
        if self.trigger.reference is ReferenceType.LABELS:
            return self._references.find(entry.namespace, entry.labels)
        return self._references.find(entry.namespace, name_attribute(entry.name))


def requests_for_owner(change: Change, primary_gvk: GVK) -> set[tuple[ObjectKey, str]]:
    """Return the possible keys of the primaries that the object names as owners, each with the uid of the owner.

    The group and the kind must be equal, the version need not be.

    An owner is in the namespace of its dependent or is cluster-scoped. Both keys are returned, because the scope of a
    kind that is not installed yet is unknown. The caller checks which one exists.
    """
    entries = (entry for entry in (change.old, change.new) if entry is not None)
    return {owner for entry in entries for owner in _owner_keys(entry, primary_gvk)}


def requests_for_annotation(change: Change, primary_gvk: GVK) -> set[ObjectKey]:
    """Return the primaries that the object's ownership annotations name, before or after this change."""
    found = (_annotated_key(entry, primary_gvk) for entry in (change.old, change.new) if entry is not None)
    return {key for key in found if key is not None}


def _has_same_references(change: Change) -> bool:
    """Return whether an update changed neither the labels nor the owners of the object."""
    old, new = change.old, change.new
    return old is not None and new is not None and old.labels == new.labels and old.owners == new.owners


def _owner_keys(entry: Entry, primary_gvk: GVK) -> Iterator[tuple[ObjectKey, str]]:
    """Yield the possible keys of each owner of the primary's group and kind, with its uid."""
    for owner in entry.owners:
        if (owner.gvk.group, owner.kind) == (primary_gvk.group, primary_gvk.kind):
            for namespace in {entry.namespace, ""}:
                yield ObjectKey(namespace, owner.name), owner.uid


def _annotated_key(entry: Entry, primary_gvk: GVK) -> ObjectKey | None:
    """Return the primary that the annotations name (``Kind.group``, ``namespace/name``), None for another kind."""
    expected = f"{primary_gvk.kind}.{primary_gvk.group}"
    # For the core group, the Go runner writes ``Secret`` but compares with ``Secret.``; accept both.
    if entry.primary_resource_type.rstrip(".") != expected.rstrip("."):
        return None
    namespace, _, name = entry.primary_resource.rpartition("/")
    return ObjectKey(namespace, name) if name else None
