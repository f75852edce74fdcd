"""What a record shows of the objects that were in the cluster before its run wrote anything.

The first answer about an object counts, unless the run had written the object by then. Where only the answer to a write
shows an object, that answer has to do, and ``assumptions`` says so. Objects that came into being after the first write
of the run (the pods of its Deployment) were not there before.

A record as the source of a sandbox: it answers with what the record shows of the cluster before the run's own writes.

What the record does not show counts as not there; ``is_known`` and ``is_listed`` tell which questions those are. The
values of Secrets are placeholders in a record, and stay so.
"""

import base64
import copy
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, SECRETS, ObjectKey, RawObject
from rolecall.kube.selectors import selects
from rolecall.runner.proxy.request_info import WRITE_VERBS
from rolecall.runner.record.masking import decode_base64
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


_NAMESPACES: Final = ("", "namespaces")
_NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"}}
_SERVICE_ACCOUNT: Final = {"apiVersion": "v1", "kind": "ServiceAccount"}
"""That of pods which name no other one."""


class RecordSource:
    """A ``Source`` of a sandbox; ``definitions`` are the CustomResourceDefinitions of the project."""

    def __init__(self, record: StoredRecord, definitions: Iterable[RawObject] = ()) -> None:
        self.kinds = RecordedKinds(record, definitions)
        self._recorded = RecordedObjects.of(record, self.kinds)
        self._add_namespaces()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was taken for granted about objects that the record shows in part; a sentence for each."""
        return tuple(self._recorded.assumptions)

    async def groups(self) -> RawObject:
        """Return the API groups of the cluster."""
        return self.kinds.groups()

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the CustomResourceDefinitions of a group."""
        return copy.deepcopy(self.kinds.definitions_of(group))

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object as it was before the run, None if it was not there or if the record does not show it."""
        found = self._recorded.objects.get((resource.gvk.group, resource.plural, key.namespace, key.name))
        return None if found is None else _importable(found, resource)

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return those of the objects before the run that the record shows and the selectors match."""
        found = [obj for key, obj in self._recorded.objects.items() if obj and _is_in(key, resource, namespace)]
        try:
            return [_importable(obj, resource) for obj in found if selects(obj, labels, fields)]
        except ValueError:
            return []

    def is_known(self, group: str, plural: str, key: ObjectKey) -> bool:
        """Tell whether the record shows if an object was there."""
        if (group, plural, key.namespace, key.name) in self._recorded.objects:
            return True
        return self.is_listed(ListQuery(group, plural, key.namespace))

    def is_listed(self, query: ListQuery) -> bool:
        """Tell whether the record has the list that was asked for, or one in which it is contained."""
        return any(
            (each.group, each.plural) == (query.group, query.plural)
            and each.namespace in ("", query.namespace)
            and (each.labels, each.fields) in ((query.labels, query.fields), ("", ""))
            for each in self._recorded.lists
        )

    def _add_namespaces(self) -> None:
        """Add the namespaces in which the record shows objects, and what each has: runs seldom ask for them."""
        for name in sorted({namespace for _, _, namespace, _ in self._recorded.objects if namespace}):
            account = ("", "serviceaccounts", name, "default")
            for key, obj in (((*_NAMESPACES, "", name), _NAMESPACE), (account, _SERVICE_ACCOUNT)):
                self._recorded.objects.setdefault(key, self._recorded.whole(key, obj))


def _is_in(key: Key, resource: ApiResource, namespace: str) -> bool:
    return key[:2] == (resource.gvk.group, resource.plural) and namespace in ("", key[2])


def _importable(obj: RawObject, resource: ApiResource) -> RawObject:
    """Return a copy of an object with its kind, and for a Secret with data that the API server takes."""
    found: RawObject = {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind, **copy.deepcopy(obj)}
    if (resource.gvk.group, resource.plural) == SECRETS and isinstance(found.get("data"), dict):
        found["data"] = dict(_decodable(found["data"]))
    return found


def _decodable(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        is_encoded = decode_base64(value) is not None
        yield name, value if is_encoded else base64.b64encode(str(value).encode()).decode()
