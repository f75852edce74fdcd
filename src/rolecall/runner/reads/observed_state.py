"""What a run has seen of an object or of a list, and which later changes of it count.

A change counts if it is newer than what was seen and if the content differs from the newest content that is known: what
was there before the change, what the run read, or what it wrote itself. Where that content is not known, a newer
version counts: one run too many is better than one too few. All functions are pure.
"""

from dataclasses import dataclass
from typing import Final

from rolecall.kube.references import GVK

DIGEST_BYTES: Final = 8
ABSENT: Final = b""
"""The digest of an object that does not exist."""

UNKNOWN: Final = -1
"""The version of what is not known; every version is newer."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a run reads: one object, or with an empty name the objects of a namespace that a label selector matches.

    The namespace is empty for all namespaces and for a cluster-scoped kind.
    """

    gvk: GVK
    namespace: str
    name: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """The digest of an object at a version: ``ABSENT`` if it did not exist, None if its content is not known.

    For a list the version is that of the list, and the digest is None.
    """

    version: int
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReadChange:
    """A change of an object.

    ``before`` is the state that is known from the watch, at the last version up to which nothing was missed. ``after``
    is the new one. ``uid`` and ``name`` are empty if they are not known.
    """

    gvk: GVK
    key_hash: bytes
    before: State
    after: State
    uid: str = ""
    name: str = ""

    @property
    def is_removal(self) -> bool:
        """Return whether the object is gone."""
        return self.after.digest == ABSENT

    @property
    def text(self) -> str:
        """The change as people read it, for example ``read Secret default/login changed``."""
        verb = "deleted" if self.is_removal else "created" if self.before.digest == ABSENT else "changed"
        return f"read {self.gvk.kind} {self.name} {verb}" if self.name else f"read list of {self.gvk.kind}: one {verb}"


def counts(change: ReadChange, seen: State, written: State | None = None) -> bool:
    """Return whether a run that has seen this state, and has itself written another one later, must run again."""
    after = change.after
    if after.version <= seen.version and after.version != UNKNOWN:
        return False
    known = change.before
    for state in (seen, written):
        if state is not None and _replaces(state, known):
            known = state
    return known.digest is None or known.digest != after.digest


def _replaces(state: State, known: State) -> bool:
    """Return whether a state is newer than another one, or as new and its content is known."""
    return state.version > known.version or (state.version == known.version and state.digest is not None)


def version_of(text: str) -> int:
    """Return a resourceVersion as a number, as Kubernetes allows since 1.35; ``UNKNOWN`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() else UNKNOWN
