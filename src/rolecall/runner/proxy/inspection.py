"""What a response to a read shows: the version of an object or list, and how objects name the run's primary.

All functions are pure and run in any thread. A list is decoded object by object, so that the event loop gets its turn
in between: Python's JSON parser lets no other thread run.
"""

from dataclasses import dataclass, field
from typing import Any

from rolecall.kube.owner_annotations import PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.bodies import decode, decode_list, decompress, objects_in
from rolecall.runner.proxy.body_worker import MAX_INSPECTED_BYTES
from rolecall.runner.proxy.ownership import Owner, Ownership, ownership_of
from rolecall.runner.proxy.request_info import RequestInfo


@dataclass(frozen=True, slots=True)
class Inspection:
    """The content of a response, of a list without its objects, and how the objects in it name the primary.

    ``content`` is None if it could not be decoded. ``keys`` are those of the objects in a list, None if it was not
    asked for them.
    """

    content: Any = None
    ownerships: frozenset[Ownership] = field(default_factory=frozenset)
    keys: frozenset[ObjectKey] | None = None


def inspect_read(
    body: bytes, info: RequestInfo, owner: Owner, *, needs_content: bool, needs_keys: bool = False
) -> Inspection:
    """Inspect the JSON of a response, which may be compressed; a body beyond the limit shows nothing.

    A list that does not mention the owner is only decoded if its content is needed.
    """
    plain = decompress(body, MAX_INSPECTED_BYTES)
    if plain is None or len(plain) > MAX_INSPECTED_BYTES:
        return Inspection()
    may_name_owner = owner.uid.encode() in plain or PRIMARY_TYPE_ANNOTATION.encode() in plain
    found: set[Ownership] = set()
    keys: set[ObjectKey] = set()

    def visit(obj: RawObject) -> None:
        if may_name_owner and (ownership := ownership_of(obj, owner)) is not None:
            found.add(ownership)
        if needs_keys:
            keys.add(ObjectKey.of_object(obj))

    if info.verb == "list" and not may_name_owner and not needs_content:
        return Inspection()
    if info.verb == "list":
        content = decode_list(plain, visit)
        return Inspection(content, frozenset(found), frozenset(keys) if needs_keys and content else None)
    content = decode(plain, "application/json")
    for obj in objects_in(content):
        visit(obj)
    return Inspection(content, frozenset(found))
