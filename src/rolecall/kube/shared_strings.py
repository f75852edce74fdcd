"""Shared strings: equal names, namespaces and labels of many objects take the memory of one.

They are not interned, because Python 3.12.0 and 3.12.1 never free an interned string, and users may write any number of
them. Only the short strings that were used last are shared, and all others are freed with their objects.
"""

from functools import lru_cache

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject

_LONGEST = 512
"""A namespace has at most 63 characters, a label 317 in its name."""


def shared(text: str) -> str:
    """Return the same string for equal ones, if it is not too long."""
    return _last_used(text) if len(text) <= _LONGEST else text


def shared_labels(obj: RawObject) -> dict[str, str]:
    """Return the labels of an object as shared strings; a field of another type counts as missing."""
    labels = metadata_of(obj).get("labels")
    if not isinstance(labels, dict):
        return {}
    return {shared(str(name)): shared(str(value)) for name, value in labels.items()}


@lru_cache(maxsize=8192)
def _last_used(text: str) -> str:
    return text
