"""The index behind triggers: from a label or a name to the primaries that refer to it.

A primary refers by terms; a term is a set of items (label and value, or a name) that the other must carry, all of
them. Each term is filed under one of its items only, the one that fewest others of its namespace are filed under, so
that ten thousand primaries that share ``app: nginx`` and differ in one label are still told apart by a single
look-up. ``triggers`` is the only user.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rolecall.kube.references import ObjectKey

Item = tuple[str, str]
Term = tuple[Item, ...]
_Filed = set[tuple[ObjectKey, Term]]

_NAME = ""  # no label has an empty key


class ReferenceIndex:
    """Which primaries refer to which items, by namespace; cluster-scoped primaries refer to all namespaces."""

    def __init__(self) -> None:
        self._drawers: dict[Item, dict[str, _Filed]] = {}
        self._places: dict[ObjectKey, tuple[tuple[Item, Term], ...]] = {}

    def put(self, key: ObjectKey, terms: Iterable[Term]) -> None:
        """Replace the terms of a primary."""
        wanted = sorted(set(terms))
        if sorted(term for _, term in self._places.get(key, ())) == wanted:
            return
        self.remove(key)
        places = tuple((self._file(key, term), term) for term in wanted)
        if places:
            self._places[key] = places

    def remove(self, key: ObjectKey) -> None:
        """Forget a primary."""
        for item, term in self._places.pop(key, ()):
            namespaces = self._drawers[item]
            namespaces[key.namespace].discard((key, term))
            if not namespaces[key.namespace]:
                del namespaces[key.namespace]
            if not namespaces:
                del self._drawers[item]

    def find(self, namespace: str, carried: Mapping[str, str]) -> set[ObjectKey]:
        """Return the primaries of which at least one term is carried by an object of this namespace.

        A cluster-scoped object, whose namespace is empty, is looked at by the primaries of all namespaces.
        """
        found = set()
        for item in carried.items():
            for key, term in self._filed_under(item, namespace):
                if all(carried.get(name) == value for name, value in term):
                    found.add(key)
        return found

    def _file(self, key: ObjectKey, term: Term) -> Item:
        item = min(term, key=lambda each: len(self._drawers.get(each, {}).get(key.namespace, ())))
        self._drawers.setdefault(item, {}).setdefault(key.namespace, set()).add((key, term))
        return item

    def _filed_under(self, item: Item, namespace: str) -> Iterable[tuple[ObjectKey, Term]]:
        namespaces = self._drawers.get(item)
        if namespaces is None:
            return
        if namespace:
            yield from namespaces.get(namespace, ())
            yield from namespaces.get("", ())
        else:
            for filed in namespaces.values():
                yield from filed


def label_terms(values: Iterable[Any]) -> list[Term]:
    """Make a term of each map of labels; an empty one, and what is no map of texts, refers to nothing."""
    return [
        tuple(sorted(value.items()))
        for value in values
        if isinstance(value, dict) and value and all(isinstance(text, str) for pair in value.items() for text in pair)
    ]


def name_terms(values: Iterable[Any]) -> list[Term]:
    """Make a term of each name; a list of names counts as its elements, what is no name refers to nothing."""
    names = [name for value in values for name in (value if isinstance(value, list) else [value])]
    return [((_NAME, name),) for name in names if isinstance(name, str) and name]


def carried_name(name: str) -> dict[str, str]:
    """Return what an object of this name carries, for terms made by ``name_terms``."""
    return {_NAME: name}
