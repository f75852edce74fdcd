"""The places that runs read and that are watched: a namespace or all of them, and a name or all of them."""

from typing import Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.reads.compact_store import namespace_hash
from rolecall.runner.reads.observed_state import Target

Place = tuple[str | None, str]
"""A namespace (None: all, and cluster-scoped objects) and a name (empty: all)."""

EVERYWHERE: Final[Place] = (None, "")


def place_of(target: Target, *, namespaced: bool) -> Place:
    """Return the narrowest place that shows all of a target."""
    return (target.namespace or None) if namespaced else None, target.name


def is_within(place: Place, other: Place) -> bool:
    """Return whether everything in one place is in another one too."""
    return other[0] in (None, place[0]) and other[1] in ("", place[1])


def key_of(target: Target) -> ObjectKey:
    """Return the key of the object that was read by its name."""
    return ObjectKey(target.namespace, target.name)


def lists_key(target: Target) -> bytes:
    """Return with what the hashes of the keys in a list begin: nothing for a list of all namespaces."""
    return namespace_hash(target.namespace) if target.namespace else b""
