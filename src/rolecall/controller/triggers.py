"""Triggers: which primaries a change of another object concerns.

A primary says in its own fields which others matter to it: the labels they carry, or their names; or others name it
as their owner. What it says is read once per change of the primary into an index, so that a change of another object
finds its requests by a look-up, however many primaries there are. For dependents, which name their primary by owner
reference or by annotation, two functions suffice. ``predicates`` decide about primaries, ``changes`` are what
informers bring.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rolecall.controller.field_paths import FieldPath
from rolecall.controller.reference_index import ReferenceIndex, carried_name, label_terms, name_terms
from rolecall.controller.source.changes import Change
from rolecall.controller.source.store import Entry
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject


class ReferenceKind(StrEnum):
    """How a primary and the other object are tied together."""

    OWNER = "owner"
    LABELS = "labels"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Trigger:
    """One entry under ``triggers``: the other kind, and what ties its objects to a primary.

    ``path`` leads into the primary, to the labels or to the names of the others; an owner trigger has none. ``on`` are
    fields of the other: an update counts only when one of them changed, or when the update made the tie or cut it.
    """

    gvk: GVK
    reference: ReferenceKind
    path: FieldPath | None = None
    on: tuple[FieldPath, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a trigger without the path that it needs, or with one that it cannot use."""
        if (self.path is None) != (self.reference is ReferenceKind.OWNER):
            expected = "no path" if self.path is not None else "a path into the primary"
            raise ValueError(f"trigger on {self.gvk} by {self.reference}: expected {expected}, found {self.path!r}")


class TriggerIndex:
    """What all primaries of one kind say about one trigger."""

    def __init__(self, trigger: Trigger, primary_gvk: GVK) -> None:
        self.trigger = trigger
        self._primary_gvk = primary_gvk
        self._references = ReferenceIndex()
        self._uids: dict[ObjectKey, str] = {}

    def update_primary(self, key: ObjectKey, obj: RawObject) -> None:
        """Read anew what a primary says."""
        if self.trigger.path is None:
            self._uids[key] = uid_of(obj)
            return
        values = self.trigger.path.values(obj)
        terms = label_terms(values) if self.trigger.reference is ReferenceKind.LABELS else name_terms(values)
        self._references.put(key, terms)

    def remove_primary(self, key: ObjectKey) -> None:
        """Forget a primary that is gone."""
        self._uids.pop(key, None)
        self._references.remove(key)

    def requests_for(self, change: Change) -> Iterator[tuple[ObjectKey, str]]:
        """Give each primary that the change concerns, once, with the reason for people."""
        before = self._concerned(change.old)
        after = before if _has_same_ties(change) else self._concerned(change.new)
        counts = not self.trigger.on or change.has_changed(self.trigger.on)
        concerned = sorted(before | after if counts else before ^ after)
        reason = change.reason if concerned else ""
        for key in concerned:
            yield key, reason

    def _concerned(self, entry: Entry | None) -> set[ObjectKey]:
        if entry is None:
            return set()
        if self.trigger.reference is ReferenceKind.OWNER:
            owners = _owner_keys(entry, self._primary_gvk)
            return {key for key, uid in owners if self._uids.get(key) == uid}
        if self.trigger.reference is ReferenceKind.LABELS:
            return self._references.find(entry.namespace, entry.labels)
        return self._references.find(entry.namespace, carried_name(entry.name))


def owner_requests(change: Change, primary_gvk: GVK) -> set[ObjectKey]:
    """Return where the primaries may lie that the object names as owners: same group and kind, in any version.

    An owner lies in the namespace of what it owns, or in none if it is cluster-scoped; both are in the answer, for
    the scope of a kind that is not installed yet is not known. The caller looks for the one that is there.
    """
    entries = (entry for entry in (change.old, change.new) if entry is not None)
    return {key for entry in entries for key, _ in _owner_keys(entry, primary_gvk)}


def annotation_requests(change: Change, primary_gvk: GVK) -> set[ObjectKey]:
    """Return the primaries that the object's annotations of ownership name, now or before this change."""
    found = (_annotated_key(entry, primary_gvk) for entry in (change.old, change.new) if entry is not None)
    return {key for key in found if key is not None}


def _has_same_ties(change: Change) -> bool:
    """Tell whether an update left alone whatever may tie the object to a primary."""
    old, new = change.old, change.new
    return old is not None and new is not None and old.labels == new.labels and old.owners == new.owners


def _owner_keys(entry: Entry, primary_gvk: GVK) -> Iterator[tuple[ObjectKey, str]]:
    """Give each key that an owner of the primary's group and kind may have, with its uid."""
    for owner in entry.owners:
        if (owner.gvk.group, owner.kind) == (primary_gvk.group, primary_gvk.kind):
            for namespace in {entry.namespace, ""}:
                yield ObjectKey(namespace, owner.name), owner.uid


def _annotated_key(entry: Entry, primary_gvk: GVK) -> ObjectKey | None:
    """Return what the two annotations name, if it is of the primary's kind: ``Kind.group`` and ``namespace/name``."""
    expected = f"{primary_gvk.kind}.{primary_gvk.group}"
    # The Go runner writes "Secret" and compares with "Secret." for the core group; both mean the same here.
    if entry.primary_resource_type.rstrip(".") != expected.rstrip("."):
        return None
    namespace, _, name = entry.primary_resource.rpartition("/")
    return ObjectKey(namespace, name) if name else None
