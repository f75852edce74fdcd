"""The inventory of a primary: the objects that its runs have named, as an annotation of the primary.

It is a note of the operator, no authority: the live object decides before anything is deleted, and an entry whose kind
isn't that of its resource is refused. So a lost inventory deletes nothing, and a forged one nothing that a run wouldn't
delete. It names the operator and the role, and one of another operator, an unreadable one, and one that is too long
count as empty.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from rolecall.kube.metadata import annotation_of, metadata_of
from rolecall.kube.references import RawObject
from rolecall.runner.prune.observations import ObjectId

INVENTORY_ANNOTATION: Final = "rolecall.dev/inventory"
MAX_OBJECTS: Final = 500
MAX_BYTES: Final = 128 << 10
"""The API server accepts 256 KiB for all annotations of an object."""

_OWN_ANNOTATIONS: Final = "rolecall.dev/"
_INPUT_METADATA: Final = ("name", "namespace", "uid", "labels", "annotations")


@dataclass(frozen=True, slots=True)
class InventoryObject:
    """An object of the primary; ``obsolete_since`` is a POSIX time in seconds if runs no longer name it, else 0."""

    id: ObjectId
    version: str
    kind: str
    uid: str
    obsolete_since: int = 0

    def __str__(self) -> str:
        """Return the kind and the key."""
        return f"{self.kind} {self.id.key}"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The last stable set of objects, with a digest of the inputs of its runs, and what is obsolete since."""

    inputs: str = ""
    objects: tuple[InventoryObject, ...] = ()
    by: str = ""
    """The operator and the role."""

    @property
    def digest(self) -> str:
        """The digest of the inputs and the objects that the stable runs have named, without uids."""
        named = sorted(each.id for each in self.objects if not each.obsolete_since)
        return hashlib.sha256(json.dumps([self.inputs, named]).encode()).hexdigest()

    @property
    def obsolete(self) -> tuple[InventoryObject, ...]:
        """The objects that they no longer name."""
        return tuple(each for each in self.objects if each.obsolete_since)

    @classmethod
    def of(cls, primary: RawObject) -> Self:
        """Return the inventory of a primary; empty if there is none, or if it is unreadable."""
        text = annotation_of(primary, INVENTORY_ANNOTATION)
        if not isinstance(text, str) or len(text) > MAX_BYTES:
            return cls()
        try:
            content = json.loads(text)
            objects = tuple(_read_object(each) for each in content["objects"])
            return cls(_text(content["inputs"]), objects, _text(content["by"]))
        except (ValueError, TypeError, LookupError, RecursionError):
            return cls()

    def without(self, deleted: ObjectId) -> Self:
        """Return the inventory without an object."""
        return replace(self, objects=tuple(each for each in self.objects if each.id != deleted))

    def to_text(self) -> str:
        """Return the value of the annotation."""
        objects = [
            [*each.id, each.version, each.kind, each.uid, each.obsolete_since]
            for each in sorted(self.objects, key=lambda each: each.id)
        ]
        content = {"by": self.by, "inputs": self.inputs, "objects": objects}
        return json.dumps(content, separators=(",", ":"))


def _read_object(raw: Any) -> InventoryObject:
    *texts, since = raw
    if isinstance(since, bool) or not isinstance(since, int):
        raise TypeError(f"obsolete_since: expected seconds, found {since!r}")
    group, resource, namespace, name, version, kind, uid = map(_text, texts)
    return InventoryObject(ObjectId(group, resource, namespace, name), version, kind, uid, since)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value


def digest_of_inputs(primary: RawObject, others: Mapping[str, Any]) -> str:
    """Return the digests of what determines a run, with a dot between them: the primary as users write it, and others.

    ``others`` is JSON, such as the digest of the role.
    """
    metadata = {name: value for name, value in metadata_of(primary).items() if name in _INPUT_METADATA}
    if isinstance(found := metadata.get("annotations"), dict):
        metadata["annotations"] = {name: found[name] for name in found if not name.startswith(_OWN_ANNOTATIONS)}
    metadata = {name: value for name, value in metadata.items() if value}  # no annotation is the same as none left
    content = {name: value for name, value in primary.items() if name not in ("metadata", "status")}
    return ".".join(_digest(each) for each in ([content, metadata], others))


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
