"""What a record shows of the objects that were in the cluster before its run wrote anything.

The first answer about an object counts, unless the run had written the object by then. Where only the answer to a write
shows an object, that answer has to do, and ``assumptions`` says so. Objects that came into being after the first write
of the run (the pods of its Deployment) were not there before.
"""

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.request_info import WRITE_VERBS
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.workbench.replay.recorded_kinds import RecordedKinds

Key = tuple[str, str, str, str]
"""Group, plural name, namespace and name."""

_OK: Final = 200
_CREATED: Final = 201
_REDIRECTION: Final = 300
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_OF_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")
_FINALIZERS_OF_DELETION: Final = frozenset({"foregroundDeletion", "orphan"})
_NO_OBJECTS: Final = frozenset({"Status", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What was listed; the selectors are as the request had them."""

    group: str
    plural: str
    namespace: str
    labels: str = ""
    fields: str = ""


@dataclass(slots=True)
class RecordedObjects:
    """The objects of one record by their keys, None for those that were not there, and the lists that it has."""

    record: StoredRecord
    kinds: RecordedKinds
    objects: dict[Key, RawObject | None] = field(default_factory=dict)
    lists: set[ListQuery] = field(default_factory=set)
    assumptions: list[str] = field(default_factory=list)
    _written: set[Key] = field(default_factory=set)
    _first_write: datetime | None = None

    @classmethod
    def of(cls, record: StoredRecord, kinds: RecordedKinds) -> "RecordedObjects":
        """Return what a record shows."""
        found = cls(record, kinds)
        found._add_primary()
        for exchange in record.exchanges:
            if exchange.get("resource") and exchange["status"] is not None:
                found._read(exchange)
        return found

    def _add_primary(self) -> None:
        obj = self.record.head["object"]
        resource = self.kinds.by_kind(GVK.of_object(obj))
        if resource is not None:
            metadata = metadata_of(obj)
            key = (resource.gvk.group, resource.plural, metadata.get("namespace") or "", metadata["name"])
            self.objects[key] = obj

    def _read(self, exchange: Line) -> None:
        verb, is_success = exchange["verb"], _OK <= exchange["status"] < _REDIRECTION
        if verb in WRITE_VERBS:
            if not _is_dry_run(exchange):
                self._read_write(exchange, is_success=is_success)
        elif verb == "watch" and is_success:
            self._read_watch(exchange)
        elif verb == "list" and is_success:
            self._read_list(exchange)
        elif verb == "get" and exchange.get("subresource", "") in ("", "status"):
            if is_success:
                self._see_all(exchange, self._items(exchange))
            elif exchange["status"] == _NOT_FOUND:
                self._note(_key_of(exchange), None)

    def _read_list(self, exchange: Line) -> None:
        self._see_all(exchange, self._items(exchange))
        answer = exchange.get("answer", {}).get("json")
        if isinstance(answer, dict) and not metadata_of(answer).get("continue"):
            self.lists.add(query_of(exchange))

    def _read_watch(self, exchange: Line) -> None:
        for event in exchange.get("answer", {}).get("lines") or ():
            obj = event.get("object") if isinstance(event, dict) else None
            if isinstance(obj, dict) and event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
                self._see_all(exchange, [obj])

    def _read_write(self, exchange: Line, *, is_success: bool) -> None:
        items = list(self._items(exchange))
        keys = [_key_of(exchange, obj) for obj in items] or [_key_of(exchange)]
        if exchange.get("subresource", "") in ("", "status"):
            self._conclude(exchange, items, keys)
        elif is_success:
            self._suppose(keys[0] if keys[0][3] else _key_of(exchange), None, "a request for its subresource")
        if is_success:
            self._written.update(keys)
            self._first_write = self._first_write or self._time_of(exchange, items)

    def _conclude(self, exchange: Line, items: list[RawObject], keys: list[Key]) -> None:
        """Take what a write tells of the time before it."""
        verb, status = exchange["verb"], exchange["status"]
        if status == _CREATED and verb != "delete":
            self._note(keys[0], None)
        elif verb == "create":
            if status == _CONFLICT:
                body = exchange.get("request", {}).get("json")
                self._suppose(_key_of(exchange, body), _plain(body), "a POST that found it there")
        elif status == _NOT_FOUND:
            self._note(keys[0], None)
        elif _OK <= status < _REDIRECTION:
            shown: list[RawObject | None] = [*items] or [None]
            for key, obj in zip(keys, shown, strict=True):
                self._suppose(key, obj, f"the answer to a {exchange['method']}")

    def _see_all(self, exchange: Line, items: Iterator[RawObject] | list[RawObject]) -> None:
        for obj in items:
            key = _key_of(exchange, obj)
            self._note(key, None if self._is_new(obj) else obj)

    def _is_new(self, obj: RawObject) -> bool:
        """Tell whether an object came into being after the run had begun to write."""
        created = parse_time(metadata_of(obj).get("creationTimestamp"))
        if self._first_write is None or created is None:
            return False
        begun = self._first_write.replace(microsecond=0)
        return created > begun or (created == begun and _has_controller(obj))

    def _note(self, key: Key, obj: RawObject | None) -> None:
        """Take note of an object as it was before the run wrote it; None if it was not there."""
        if key[3] and key not in self.objects and key not in self._written:
            self.objects[key] = obj

    def _suppose(self, key: Key, obj: RawObject | None, source: str) -> None:
        """Take note of an object that was there, but of which only a write shows something."""
        if not key[3] or key in self.objects or key in self._written:
            return
        self.objects[key] = self.whole(key, obj)
        resource = self.kinds.find(key[0], key[1])
        kind = resource.gvk.kind if resource else key[1]
        name = "/".join(part for part in key[2:] if part)
        self.assumptions.append(f"{kind} {name} was before the run as in {source}: the record does not show it earlier")

    def whole(self, key: Key, obj: RawObject | None) -> RawObject:
        """Return an object without the marks of its deletion, and with the metadata that every object has."""
        resource = self.kinds.find(key[0], key[1])
        found = copy.deepcopy(obj or {})
        if resource:
            found = {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind} | found
        metadata = {name: value for name, value in metadata_of(found).items() if name not in _OF_DELETION}
        metadata |= {"name": key[3], **({"namespace": key[2]} if key[2] else {})}
        metadata.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(key))))
        metadata.setdefault("creationTimestamp", f"{self._started:%Y-%m-%dT%H:%M:%SZ}")
        if finalizers := [each for each in metadata.get("finalizers") or () if each not in _FINALIZERS_OF_DELETION]:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        return found | {"metadata": metadata}

    def _items(self, exchange: Line) -> Iterator[RawObject]:
        """Yield the objects of an answer whole, with their API version and kind, which lists leave out."""
        answer = exchange.get("answer", {}).get("json")
        if not isinstance(answer, dict) or answer.get("kind") in _NO_OBJECTS:
            return
        kind = str(answer.get("kind") or "")
        if not (isinstance(answer.get("items"), list) and kind.endswith("List")):
            yield answer
            return
        for item in answer["items"]:
            if isinstance(item, dict):
                yield {"apiVersion": answer.get("apiVersion"), "kind": kind.removesuffix("List")} | item

    @property
    def _started(self) -> datetime:
        return parse_time(self.record.head["started"]) or datetime.now(UTC)

    def _time_of(self, exchange: Line, items: list[RawObject]) -> datetime:
        """Return the time of a write by the clock of the API server, if its answer tells it."""
        created = parse_time(metadata_of(items[0]).get("creationTimestamp")) if items else None
        is_told = created is not None and exchange["status"] == _CREATED
        return (created if is_told else None) or parse_time(exchange["time"]) or self._started


def query_of(exchange: Line) -> ListQuery:
    """Return what a request lists."""
    query = dict(exchange["query"])
    return ListQuery(
        exchange["group"],
        exchange["resource"],
        exchange["namespace"],
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
    )


def parse_time(text: Any) -> datetime | None:
    """Return a time in RFC 3339, None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _key_of(exchange: Line, obj: Any = None) -> Key:
    metadata = metadata_of(obj) if isinstance(obj, dict) else {}
    namespace = exchange["namespace"] or metadata.get("namespace") or ""
    name = metadata.get("name") or exchange["name"] or ""
    if exchange["resource"] == "namespaces" and not exchange["group"]:
        namespace = ""
    return exchange["group"], exchange["resource"], namespace, name


def _is_dry_run(exchange: Line) -> bool:
    return any(name == "dryRun" for name, _ in exchange["query"])


def _has_controller(obj: RawObject) -> bool:
    return any(each.get("controller") for each in metadata_of(obj).get("ownerReferences") or ())


def _plain(body: Any) -> RawObject | None:
    return body if isinstance(body, dict) else None
