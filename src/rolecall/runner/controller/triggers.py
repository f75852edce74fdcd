"""Triggers: map a change of another object to requests for the primaries that it affects.

A primary may refer to other objects by labels or by name, in its own fields, or the others name it as their owner. The
references of all primaries are kept in an index, which is updated when a primary changes. So a change of another object
needs only a lookup, however many primaries there are. Dependents, which name their primary by owner reference or
annotation, need no index: see ``requests_for_owner`` and ``requests_for_annotation``.

The index for triggers: from the labels or the name of an object to the primaries that refer to it.

A primary refers to other objects with terms. A term is a set of attributes (a label with its value, or a name), all of
which an object must have. Each term is indexed by only one of its attributes: the one with the fewest terms in the
namespace. So a single lookup is enough even if ten thousand primaries share ``app: nginx`` and differ in one label.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import ReferenceType, Trigger
from rolecall.runner.controller.store import Change, Entry

Attribute = tuple[str, str]
Term = tuple[Attribute, ...]
_Terms = set[tuple[ObjectKey, Term]]

_NAME_KEY = ""  # no label has an empty key


class ReferenceIndex:
    """Maps attributes to the primaries that refer to them, by namespace; cluster-scoped primaries match in all."""

    def __init__(self) -> None:
        self._terms_by_attribute: dict[Attribute, dict[str, _Terms]] = {}
        self._terms_by_primary: dict[ObjectKey, tuple[tuple[Attribute, Term], ...]] = {}

    def put(self, key: ObjectKey, terms: Iterable[Term]) -> None:
        """Replace the terms of a primary."""
        new_terms = sorted(set(terms))
        if sorted(term for _, term in self._terms_by_primary.get(key, ())) == new_terms:
            return
        self.remove(key)
        indexed = tuple((self._add_term(key, term), term) for term in new_terms)
        if indexed:
            self._terms_by_primary[key] = indexed

    def remove(self, key: ObjectKey) -> None:
        """Remove a primary."""
        for attribute, term in self._terms_by_primary.pop(key, ()):
            namespaces = self._terms_by_attribute[attribute]
            namespaces[key.namespace].discard((key, term))
            if not namespaces[key.namespace]:
                del namespaces[key.namespace]
            if not namespaces:
                del self._terms_by_attribute[attribute]

    def find(self, namespace: str, attributes: Mapping[str, str]) -> set[ObjectKey]:
        """Return the primaries with a term that an object with these attributes in this namespace matches.

        A cluster-scoped object, whose namespace is empty, is matched against the primaries of all namespaces.
        """
        found = set()
        for attribute in attributes.items():
            for key, term in self._terms_for(attribute, namespace):
                if all(attributes.get(name) == value for name, value in term):
                    found.add(key)
        return found

    def _add_term(self, key: ObjectKey, term: Term) -> Attribute:
        attribute = min(term, key=lambda each: len(self._terms_by_attribute.get(each, {}).get(key.namespace, ())))
        self._terms_by_attribute.setdefault(attribute, {}).setdefault(key.namespace, set()).add((key, term))
        return attribute

    def _terms_for(self, attribute: Attribute, namespace: str) -> Iterable[tuple[ObjectKey, Term]]:
        namespaces = self._terms_by_attribute.get(attribute)
        if namespaces is None:
            return
        if namespace:
            yield from namespaces.get(namespace, ())
            yield from namespaces.get("", ())
        else:
            for terms in namespaces.values():
                yield from terms


def label_terms(values: Iterable[Any]) -> list[Term]:
    """Return a term for each mapping of labels; empty mappings and other values refer to nothing."""
    return [
        tuple(sorted(value.items()))
        for value in values
        if isinstance(value, dict) and value and all(isinstance(part, str) for pair in value.items() for part in pair)
    ]


def name_terms(values: Iterable[Any]) -> list[Term]:
    """Return a term for each name; lists of names are flattened, and other values refer to nothing."""
    names = [name for value in values for name in (value if isinstance(value, list) else [value])]
    return [((_NAME_KEY, name),) for name in names if isinstance(name, str) and name]


def name_attribute(name: str) -> dict[str, str]:
    """Return the attributes of an object with this name, to match against ``name_terms``."""
    return {_NAME_KEY: name}


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
        is_relevant = not self.trigger.fields or change.has_changed(self.trigger.fields)
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
