"""The inventory of a primary: the objects that its runs have named, as an annotation of the primary.

It is a note of the operator, no authority: the mark of the live object decides before anything is deleted, and an entry
whose kind isn't that of its resource is rejected. So a lost inventory deletes nothing. It names the operator and the
role, and one of another operator, an unreadable one, and one that is too long count as empty. One of the first format
has no digests of the spec and the role, so that what its runs no longer name looks like the work of a changed role.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

from rolecall.kube.metadata import annotation_of, generation_of, metadata_of
from rolecall.kube.references import RawObject
from rolecall.runner.prune.observations import ObjectId

INVENTORY_ANNOTATION: Final = "rolecall.dev/inventory"
MAX_OBJECTS: Final = 500
MAX_BYTES: Final = 128 << 10
"""The API server accepts 256 KiB for all annotations of an object."""

NAMED: Final = 0
PENDING: Final = -1
_OWN_ANNOTATIONS: Final = "rolecall.dev/"
_FIRST_FORMAT: Final = 8


class Inputs(NamedTuple):
    """The digests of what determines a run: the spec, the role with its variables, and labels and annotations.

    The generation is that of the primary, 0 for a kind without generations. Without another one, no user has edited the
    spec: another default of its CRD has changed it.
    """

    spec: str
    role: str
    metadata: str = ""
    generation: int = 0

    @property
    def digests(self) -> tuple[str, str, str]:
        """The inputs, which are the same for equal runs."""
        return self.spec, self.role, self.metadata


@dataclass(frozen=True, slots=True)
class InventoryObject:
    """An object of the primary.

    ``since`` says what runs with the inputs of the inventory have done with it: ``NAMED`` if one has named it,
    ``PENDING`` if none has, but no complete one was among them, and else the POSIX time in seconds since which it is
    obsolete. ``asks`` is whether a person must confirm its deletion. ``seen`` is the digest of the object when it
    became obsolete, see ``digest_of_object``.
    """

    id: ObjectId
    version: str
    kind: str
    uid: str
    since: int = NAMED
    asks: bool = False
    seen: str = ""

    @property
    def is_obsolete(self) -> bool:
        """Whether complete runs no longer name it."""
        return self.since > NAMED

    def __str__(self) -> str:
        """Return the kind and the key."""
        return f"{self.kind} {self.id.key}"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The objects of stable sets of runs, with the digests of the inputs by which they were judged last."""

    spec: str = ""
    role: str = ""
    generation: int = 0
    """The generation of the primary with this spec, 0 for a kind without generations."""

    objects: tuple[InventoryObject, ...] = ()
    by: str = ""
    """The operator and the role."""

    stable: str = ""
    """The digest of the last stable set."""

    confirm: str = ""
    """The digest of the deletions that need a person, empty if there are none."""

    waiting: Mapping[ObjectId, str] = field(default_factory=dict)
    """What wasn't final, and why, when nothing was obsolete."""

    @property
    def obsolete(self) -> tuple[InventoryObject, ...]:
        """The objects that complete runs no longer name."""
        return tuple(each for each in self.objects if each.is_obsolete)

    @classmethod
    def of(cls, primary: RawObject) -> Self:
        """Return the inventory of a primary; empty if there is none, or if it is unreadable."""
        return cls.read(annotation_of(primary, INVENTORY_ANNOTATION))

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Return the inventory with this text; empty if it is unreadable."""
        if not isinstance(text, str) or len(text) > MAX_BYTES:
            return cls()
        try:
            content = json.loads(text)
            objects = tuple(_read_object(each) for each in content["objects"])
            names = ("spec", "role", "by", "stable", "confirm")
            texts = {name: _text(content.get(name, "")) for name in names}
            generation = _integer(content.get("generation", 0))
            waiting = {_read_id(found): _text(why) for *found, why in content.get("waiting", ())}
            return cls(generation=generation, objects=objects, waiting=waiting, **texts)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return cls()

    def without(self, gone: ObjectId) -> Self:
        """Return the inventory without an object."""
        return replace(self, objects=tuple(each for each in self.objects if each.id != gone))

    def having(self, changed: InventoryObject) -> Self:
        """Return the inventory with another state of one of its objects."""
        return replace(self, objects=tuple(changed if each.id == changed.id else each for each in self.objects))

    def to_text(self) -> str:
        """Return the value of the annotation."""
        objects = [
            [*each.id, each.version, each.kind, each.uid, each.since, each.asks, each.seen]
            for each in sorted(self.objects, key=lambda each: each.id)
        ]
        waiting = [[*each, why] for each, why in sorted(self.waiting.items())]
        texts = {"by": self.by, "spec": self.spec, "role": self.role, "stable": self.stable, "confirm": self.confirm}
        content = {**texts, "generation": self.generation, "waiting": waiting, "objects": objects}
        return json.dumps(content, separators=(",", ":"))


def _read_object(raw: Any) -> InventoryObject:
    if not isinstance(raw, list):
        raise TypeError(f"expected an entry, found {raw!r}")
    *texts, since = raw[:_FIRST_FORMAT]
    asks, seen = raw[_FIRST_FORMAT:] or (False, "")
    if not isinstance(asks, bool):
        raise TypeError(f"expected whether a person must confirm, found {asks!r}")
    version, kind, uid = map(_text, texts[4:])
    return InventoryObject(_read_id(texts[:4]), version, kind, uid, _integer(since), asks, _text(seen))


def _read_id(raw: list[Any]) -> ObjectId:
    group, resource, namespace, name = map(_text, raw)
    return ObjectId(group, resource, namespace, name)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected an integer, found {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value


def inputs_of(primary: RawObject, role: Mapping[str, Any]) -> Inputs:
    """Return the digests of what determines a run of a primary; ``role`` is JSON, such as the digest of the files."""
    metadata = metadata_of(primary)
    annotations = metadata.get("annotations") or {}
    given = {name: value for name, value in annotations.items() if not name.startswith(_OWN_ANNOTATIONS)}
    content = {name: value for name, value in primary.items() if name not in ("metadata", "status")}
    labels = _digest([metadata.get("labels") or {}, given])
    return Inputs(_digest(content), _digest(role), labels, generation_of(primary))


def digest_of_object(obj: RawObject) -> str:
    """Return the digest of an object without its status, and without what each write changes."""
    metadata = {name: value for name, value in metadata_of(obj).items() if name != "resourceVersion"}
    metadata["managedFields"] = [
        {name: value for name, value in each.items() if name != "time"}
        for each in metadata.get("managedFields") or ()
        if isinstance(each, dict) and each.get("subresource") != "status"
    ]
    return _digest({**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata})


def confirmation_of(inputs: Sequence[str], objects: Iterable[InventoryObject]) -> str:
    """Return the digest by which a person confirms the deletion of exactly these objects, with these inputs."""
    return digest_of(list(inputs[:2]), sorted(each.uid for each in objects))


def digest_of(*values: object) -> str:
    """Return a short digest of JSON values."""
    return _digest(values)[:16]


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
