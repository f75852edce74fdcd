"""References to kinds, objects and owners.

All classes are frozen and hashable, so that they can be keys of a queue, a store or an index. Their text forms are
those of Kubernetes: ``apps/v1, Kind=Deployment`` for a kind and ``namespace/name`` for an object.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

RawObject = dict[str, Any]
"""An object as the API server sends it: plain JSON, nothing converted."""


_BUILT_IN_GROUPS: Final = frozenset(
    f"{name}.k8s.io"
    for name in (
        *("admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization"),
        *("certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver"),
        *("networking", "node", "rbac.authorization", "resource", "scheduling", "storage", "storagemigration"),
    )
)
"""The groups of Kubernetes with a dot. Other groups that end with ``k8s.io`` are those of CRDs."""

SECRETS: Final = ("", "secrets")
"""The group and resource of requests for Secrets."""


@dataclass(frozen=True, slots=True, order=True)
class GVK:
    """A kind of object: API group (empty for the core group), version and kind."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> Self:
        """Return the GVK for an API version and a kind, for example ``apps/v1`` and ``Deployment``."""
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    @classmethod
    def of_object(cls, obj: Mapping[str, Any]) -> Self:
        """Return the GVK of an object; a missing field becomes an empty string."""
        return cls.of(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))

    @property
    def api_version(self) -> str:
        """The value of an object's ``apiVersion`` field."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_built_in(self) -> bool:
        """Whether Kubernetes itself serves the group, so that its own controllers manage the status of the kind."""
        return "." not in self.group or self.group in _BUILT_IN_GROUPS

    def __str__(self) -> str:
        """Return the text that Kubernetes controllers log, ``/v1, Kind=Pod`` for the core group."""
        return f"{self.group}/{self.version}, Kind={self.kind}"


def plural_of(kind: str) -> str:
    """Return the English plural of a kind, in lower case, by simple rules: the usual name of its resource."""
    word = kind.lower()
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}s"


SECRET: Final = GVK("", "v1", "Secret")


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """The namespace and name of an object; the namespace is empty for a cluster-scoped object."""

    namespace: str
    name: str

    @classmethod
    def of_object(cls, obj: Mapping[str, Any]) -> Self:
        """Return the key of an object."""
        metadata = obj.get("metadata") or {}
        return cls(metadata.get("namespace") or "", metadata.get("name") or "")

    def __str__(self) -> str:
        """Return ``namespace/name``, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """A reference from a dependent to its owner, in the same namespace or cluster-scoped."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> Self:
        """Return the reference for one element of ``metadata.ownerReferences``."""
        return cls(
            str(raw.get("apiVersion") or ""),
            str(raw.get("kind") or ""),
            str(raw.get("name") or ""),
            str(raw.get("uid") or ""),
            raw.get("controller") is True,
        )

    @property
    def gvk(self) -> GVK:
        """The owner's kind."""
        return GVK.of(self.api_version, self.kind)
