"""Predicates and triggers: which changes start a reconcile, and of which primaries.

Predicates are pure functions. Those for primaries follow the Go runner: creation and deletion pass, an update passes
only with a new generation, and the selector is applied to the current labels. The predicate for dependents ignores
creation, which the run itself caused, and updates of only the status. Under the name ``ansible-operator``, a status
that gets or loses a field counts, see ``STATUS_FIELDS``.

Triggers map a change of another object to requests for the primaries that it affects. A primary may refer to other
objects by labels or by name, in its own fields, or the others name it as their owner. The references of all primaries
are kept in an index, which is updated when a primary changes. So a change of another object needs only a lookup,
regardless of the number of primaries. Dependents, which name their primary by owner reference or annotation, need no
index: see ``requests_for_owner`` and ``requests_for_annotation``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import ReferenceType, Trigger, Watch
from rolecall.runner.controller.store import Change, Entry

Attribute = tuple[str, str]
Term = tuple[Attribute, ...]

_NAME_KEY = ""  # no label has an empty key


STATUS_FIELDS = FieldPath.parse("$.metadata.managedFields[*].fieldsV1.'f:status'")
"""The names of the fields in an object's status; for example, a Job that finishes gets a condition.

DependentPredicate of operator-lib ignores the status of an object, but not ``managedFields``, which name its fields.
"""


def dependent_changed(change: Change, fields: tuple[FieldPath, ...] = ()) -> bool:
    """Return whether a dependent was deleted, or updated in more than its status, or in one of these fields.

    Creation never passes.
    """
    if change.old is None:
        return False
    return change.new is None or change.old.digest != change.new.digest or change.has_changed(fields)


def primary_changed(change: Change, watch: Watch, fields: tuple[FieldPath, ...] = ()) -> bool:
    """Return whether a change of a primary triggers a reconcile.

    In addition to the generation, changes of ``fields`` pass and, with ``watchAnnotationsChanges``, changes of
    annotations. The selector is applied to the new labels, or to the last known labels of a deleted object. An object
    that the selector starts to match is treated as new. With a finalizer, an object that is being deleted passes even
    if the selector no longer matches, because the operator's finalizer still blocks its deletion.
    """
    old, new, entry = change.old, change.new, change.entry
    if not watch.selector.matches(entry.labels) and not (watch.finalizer and entry.is_deleting):
        return False
    if old is None or new is None or change.has_changed(fields) or not watch.selector.matches(old.labels):
        return True
    if old.generation == new.generation == 0:  # a kind without generations
        return old.resource_version != new.resource_version
    has_changed_annotations = old.annotations_digest != new.annotations_digest
    return old.generation != new.generation or (watch.watch_annotations_changes and has_changed_annotations)


class ReferenceIndex:
    """Maps attributes to the primaries that refer to them, by namespace; cluster-scoped primaries match in all.

    A primary refers to other objects with terms. A term is a set of attributes (a label with its value, or a name), all
    of which an object must have. Each term is indexed by only one of its attributes: the one with the fewest terms in
    the namespace. So a single lookup is enough even if ten thousand primaries share ``app: nginx`` and differ in one
    label.
    """

    def __init__(self) -> None:
        self._terms_by_attribute: dict[Attribute, dict[str, set[tuple[ObjectKey, Term]]]] = {}
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
            namespaces = self._terms_by_attribute.get(attribute, {})
            for each in (namespace, "") if namespace else tuple(namespaces):
                for key, term in namespaces.get(each, ()):
                    if all(attributes.get(name) == value for name, value in term):
                        found.add(key)
        return found

    def _add_term(self, key: ObjectKey, term: Term) -> Attribute:
        attribute = min(term, key=lambda each: len(self._terms_by_attribute.get(each, {}).get(key.namespace, ())))
        self._terms_by_attribute.setdefault(attribute, {}).setdefault(key.namespace, set()).add((key, term))
        return attribute


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
        old, new = change.old, change.new
        before = self._referring_primaries(old)
        # Most updates change neither labels nor owners: then the second lookup is saved.
        has_same = old is not None and new is not None and old.labels == new.labels and old.owners == new.owners
        after = before if has_same else self._referring_primaries(new)
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
        is_by_labels = self.trigger.reference is ReferenceType.LABELS
        return self._references.find(entry.namespace, entry.labels if is_by_labels else {_NAME_KEY: entry.name})


def requests_for_owner(change: Change, primary_gvk: GVK) -> set[tuple[ObjectKey, str]]:
    """Return the possible keys of the primaries that the object names as owners, each with the uid of the owner.

    The group and the kind must be equal, the version doesn't matter.

    An owner is in the namespace of its dependent or is cluster-scoped. Both keys are returned, because the scope of a
    kind that is not installed yet is unknown. The caller checks which one exists.
    """
    entries = (entry for entry in (change.old, change.new) if entry is not None)
    return {owner for entry in entries for owner in _owner_keys(entry, primary_gvk)}


def requests_for_annotation(change: Change, primary_gvk: GVK) -> set[tuple[ObjectKey, str]]:
    """Return the primaries that the object's ownership annotations name, before or after this change, without uids.

    The annotations contain ``Kind.group`` and ``namespace/name``.
    """
    expected = f"{primary_gvk.kind}.{primary_gvk.group}".rstrip(".")
    found = set()
    for entry in (change.old, change.new):
        # For the core group, the Go runner writes ``Secret`` but compares with ``Secret.``; accept both.
        if entry is not None and entry.primary_resource_type.rstrip(".") == expected:
            namespace, _, name = entry.primary_resource.rpartition("/")
            if name:
                found.add((ObjectKey(namespace, name), ""))
    return found


def _owner_keys(entry: Entry, primary_gvk: GVK) -> Iterator[tuple[ObjectKey, str]]:
    """Yield the possible keys of each owner of the primary's group and kind, with its uid."""
    for owner in entry.owners:
        if (owner.gvk.group, owner.kind) == (primary_gvk.group, primary_gvk.kind):
            for namespace in {entry.namespace, ""}:
                yield ObjectKey(namespace, owner.name), owner.uid
