"""Names of things in a cluster: kinds, objects and owners.

Everything is frozen and hashable, so that it can be a key of a queue, a store or an index. The text forms are those
that Kubernetes people read every day: ``apps/v1, Kind=Deployment`` for a kind and ``namespace/name`` for an object.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

RawObject = dict[str, Any]
"""An object as the API server sends it: plain JSON, nothing converted."""


@dataclass(frozen=True, slots=True, order=True)
class GVK:
    """A kind of object: API group (empty for the core group), version and kind."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> Self:
        """Make a GVK from the two fields of an object, for example ``apps/v1`` and ``Deployment``."""
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    @classmethod
    def of_object(cls, obj: Mapping[str, Any]) -> Self:
        """Make a GVK from an object's ``apiVersion`` and ``kind``; a missing field becomes empty text."""
        return cls.of(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))

    @property
    def api_version(self) -> str:
        """The text of an object's ``apiVersion`` field."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        """Give the text that Kubernetes controllers log, ``/v1, Kind=Pod`` for the core group."""
        return f"{self.group}/{self.version}, Kind={self.kind}"


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Where an object of a known kind lies; the namespace is empty for a cluster-scoped one."""

    namespace: str
    name: str

    @classmethod
    def of_object(cls, obj: Mapping[str, Any]) -> Self:
        """Make a key from an object's metadata."""
        metadata = obj.get("metadata") or {}
        return cls(metadata.get("namespace") or "", metadata.get("name") or "")

    def __str__(self) -> str:
        """Give ``namespace/name``, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """A garbage-collection link from a dependent to its owner in the same namespace, or to a cluster-scoped one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> Self:
        """Read one element of ``metadata.ownerReferences``."""
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
