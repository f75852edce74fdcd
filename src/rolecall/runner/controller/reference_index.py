"""The index for triggers: from the labels or the name of an object to the primaries that refer to it.

A primary refers to other objects with terms. A term is a set of attributes (a label with its value, or a name), all of
which an object must have. Each term is indexed by only one of its attributes: the one with the fewest terms in the
namespace. So a single lookup is enough even if ten thousand primaries share ``app: nginx`` and differ in one label.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rolecall.kube.references import ObjectKey

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
