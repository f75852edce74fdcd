"""A record as the source of a sandbox: the objects of the cluster before the run wrote anything, as the record shows.

The first response with an object counts, unless the run had written the object by then. If only the response to a write
shows an object, that response is used, and ``assumptions`` reports this. Objects that were created after the first
write of the run (the pods of its Deployment) did not exist before. An object that the record does not show is treated
as missing; ``is_known`` and ``is_listed`` report whether the record shows an object or list. The values of Secrets are
placeholders in a record, and remain placeholders.
"""

import base64
import copy
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of, owner_references_of
from rolecall.kube.quantities import parse_time
from rolecall.kube.references import GVK, SECRETS, ObjectKey, RawObject
from rolecall.kube.selectors import selects
from rolecall.runner.proxy.request_info import WRITE_VERBS, RequestInfo
from rolecall.runner.proxy.writes import with_delete_options
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.secrets.mask import decode_base64
from rolecall.workbench.replay.recorded_kinds import RecordedKinds

Key = tuple[str, str, str, str]
"""Group, plural name, namespace and name."""

_SUCCESSES: Final = range(200, 300)
_CREATED: Final = 201
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_OBJECT_SUBRESOURCES: Final = ("", "status")
"""The subresources whose requests and responses have the whole object."""
_SET_AT_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")
_FINALIZERS_OF_DELETION: Final = frozenset({"foregroundDeletion", "orphan"})
_NO_OBJECTS: Final = frozenset({"Status", "Table"})
_METADATA_ONLY: Final = "PartialObjectMetadata"
"""The kind of objects whose content the client didn't request, such as ``k8s_info`` with ``metadata_only``."""
_NAMESPACES: Final = ("", "namespaces")
_NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"}}
_SERVICE_ACCOUNT: Final = {"apiVersion": "v1", "kind": "ServiceAccount"}
"""The default service account of pods."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A list request; the selectors are those of the request."""

    group: str
    plural: str
    namespace: str
    labels: str = ""
    fields: str = ""


class RecordSource:
    """A ``Source`` of a sandbox; ``definitions`` are the CustomResourceDefinitions of the project.

    ``assumptions`` are sentences about the objects that the record shows in part.
    """

    def __init__(self, record: StoredRecord, definitions: Iterable[RawObject] = ()) -> None:
        self.kinds = RecordedKinds(record, definitions)
        self.assumptions: list[str] = []
        self._record = record
        self._objects: dict[Key, RawObject | None] = {}  # None for those that did not exist
        self._lists: set[ListQuery] = set()
        self._metadata: dict[Key, RawObject] = {}  # the objects of which responses show only the metadata
        self._written: set[Key] = set()
        self._first_write: datetime | None = None
        self._read_record()

    async def groups(self) -> RawObject:
        """Return the API groups of the cluster."""
        return self.kinds.groups()

    async def definitions(self, group: str) -> list[RawObject]:
        """Return the CustomResourceDefinitions of a group."""
        return copy.deepcopy(self.kinds.definitions_of(group))

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object as it was before the run, None if it did not exist or the record does not show it."""
        found = self._objects.get((resource.gvk.group, resource.plural, key.namespace, key.name))
        return None if found is None else _importable(found, resource)

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects before the run that the record shows and the selectors match."""
        kind = (resource.gvk.group, resource.plural)
        recorded = self._objects.items()
        found = [obj for key, obj in recorded if obj and key[:2] == kind and namespace in ("", key[2])]
        try:
            return [_importable(obj, resource) for obj in found if selects(obj, labels, fields)]
        except ValueError:
            return []

    def is_known(self, group: str, plural: str, key: ObjectKey) -> bool:
        """Return whether the record shows if an object existed."""
        if (group, plural, key.namespace, key.name) in self._objects:
            return True
        return self.is_listed(ListQuery(group, plural, key.namespace))

    def is_listed(self, query: ListQuery) -> bool:
        """Return whether the record has a list, or one that contains it."""
        return any(
            (each.group, each.plural) == (query.group, query.plural)
            and each.namespace in ("", query.namespace)
            and (each.labels, each.fields) in ((query.labels, query.fields), ("", ""))
            for each in self._lists
        )

    def _read_record(self) -> None:
        """Find the objects and lists that the record shows."""
        obj = self._record.head["object"]
        if resource := self.kinds.by_kind(GVK.of_object(obj)):
            metadata = metadata_of(obj)
            key = (resource.gvk.group, resource.plural, metadata.get("namespace") or "", metadata["name"])
            self._objects[key] = obj
        for exchange in self._record.exchanges:
            if exchange.get("resource") and exchange["status"] is not None and not is_dry_run(exchange):
                self._read(exchange)
        for key, obj in self._metadata.items():
            self._assume(key, {"metadata": metadata_of(obj)}, "a read of its metadata")
        # Runs seldom request the namespaces of their objects.
        for name in sorted({namespace for _, _, namespace, _ in self._objects if namespace}):
            account = ("", "serviceaccounts", name, "default")
            for key, obj in (((*_NAMESPACES, "", name), _NAMESPACE), (account, _SERVICE_ACCOUNT)):
                self._objects.setdefault(key, self._whole(key, obj))

    def _read(self, exchange: Line) -> None:
        verb, is_success = exchange["verb"], exchange["status"] in _SUCCESSES
        has_object = exchange.get("subresource", "") in _OBJECT_SUBRESOURCES
        response = exchange.get("answer", {})
        if verb in WRITE_VERBS:
            self._read_write(exchange, is_success=is_success)
        elif verb == "watch" and is_success:
            for event in response.get("lines") or ():
                obj = event.get("object") if isinstance(event, dict) else None
                if isinstance(obj, dict) and event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
                    self._note_all(exchange, [obj])
        elif verb == "list" and is_success:
            self._note_all(exchange, _objects_in(exchange))
            content = response.get("json")
            if isinstance(content, dict) and not metadata_of(content).get("continue"):
                self._lists.add(query_of(exchange))
        elif verb == "get" and has_object and is_success:
            self._note_all(exchange, _objects_in(exchange))
        elif verb == "get" and has_object and exchange["status"] == _NOT_FOUND:
            self._note(_key_of(exchange), None)

    def _read_write(self, exchange: Line, *, is_success: bool) -> None:
        objects = [obj for obj in _objects_in(exchange) if obj.get("kind") != _METADATA_ONLY]
        keys = [_key_of(exchange, obj) for obj in objects] or [_key_of(exchange)]
        if exchange.get("subresource", "") in _OBJECT_SUBRESOURCES:
            self._infer(exchange, objects, keys)
        elif is_success:
            self._assume(keys[0] if keys[0][3] else _key_of(exchange), None, "a request for its subresource")
        if is_success:
            self._written.update(keys)
            self._first_write = self._first_write or self._time_of(exchange, objects)

    def _infer(self, exchange: Line, objects: Sequence[RawObject], keys: Sequence[Key]) -> None:
        """Infer the state before a write from its response."""
        verb, status = exchange["verb"], exchange["status"]
        if status == _CREATED and verb != "delete":
            self._note(keys[0], None)
        elif verb == "create":
            if status == _CONFLICT:
                body = exchange.get("request", {}).get("json")
                obj = body if isinstance(body, dict) else None
                self._assume(_key_of(exchange, body), obj, "a POST that found it there")
        elif status == _NOT_FOUND:
            self._note(keys[0], None)
        elif status in _SUCCESSES:
            known: list[RawObject | None] = [*objects] or [None]
            for key, obj in zip(keys, known, strict=True):
                self._assume(key, obj, f"the response to a {exchange['method']}")

    def _note_all(self, exchange: Line, objects: Iterable[RawObject]) -> None:
        """Record the objects of a response, or that they did not exist before the run started to write."""
        for obj in objects:
            created = parse_time(metadata_of(obj).get("creationTimestamp"))
            is_new = False
            if self._first_write is not None and created is not None:
                first = self._first_write.replace(microsecond=0)
                has_controller = any(each.controller for each in owner_references_of(obj))
                is_new = created > first or (created == first and has_controller)
            key = _key_of(exchange, obj)
            if obj.get("kind") != _METADATA_ONLY or is_new:
                self._note(key, None if is_new else obj)
            elif key not in self._written:
                self._metadata.setdefault(key, obj)

    def _note(self, key: Key, obj: RawObject | None) -> None:
        """Record an object as it was before the run wrote it; None if it did not exist."""
        if key[3] and key not in self._objects and key not in self._written:
            self._objects[key] = obj

    def _assume(self, key: Key, obj: RawObject | None, source: str) -> None:
        """Record an object that existed, but of which only a write shows something."""
        if not key[3] or key in self._objects or key in self._written:
            return
        self._objects[key] = self._whole(key, obj)
        resource = self.kinds.find(key[0], key[1])
        kind = resource.gvk.kind if resource else key[1]
        name = "/".join(part for part in key[2:] if part)
        self.assumptions.append(f"{kind} {name} was before the run as in {source}: the record does not show it earlier")

    def _whole(self, key: Key, obj: RawObject | None) -> RawObject:
        """Return an object without the marks of its deletion, and with the metadata that every object has."""
        resource = self.kinds.find(key[0], key[1])
        found = copy.deepcopy(obj or {})
        if resource:
            found = {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind} | found
        metadata = {name: value for name, value in metadata_of(found).items() if name not in _SET_AT_DELETION}
        metadata |= {"name": key[3], **({"namespace": key[2]} if key[2] else {})}
        metadata.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(key))))
        metadata.setdefault("creationTimestamp", f"{self._started:%Y-%m-%dT%H:%M:%SZ}")
        finalizers = [each for each in metadata.pop("finalizers", None) or () if each not in _FINALIZERS_OF_DELETION]
        metadata |= {"finalizers": finalizers} if finalizers else {}
        return found | {"metadata": metadata}

    @property
    def _started(self) -> datetime:
        return parse_time(self._record.head["started"]) or datetime.now(UTC)

    def _time_of(self, exchange: Line, objects: Sequence[RawObject]) -> datetime:
        """Return the time of a write: by the clock of the API server if the response to a creation has it."""
        is_creation = bool(objects) and exchange["status"] == _CREATED
        created = parse_time(metadata_of(objects[0]).get("creationTimestamp")) if is_creation else None
        return created or parse_time(exchange["time"]) or self._started


def query_of(exchange: Line) -> ListQuery:
    """Return the query of a list request."""
    query = dict(exchange["query"])
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return ListQuery(exchange["group"], exchange["resource"], exchange["namespace"], labels, fields)


def is_dry_run(exchange: Line) -> bool:
    """Return whether a request is a dry run, by its query or its body."""
    is_dry_run = any(name == "dryRun" for name, _ in exchange["query"])
    info = RequestInfo(exchange["verb"], subresource=exchange.get("subresource", ""), is_dry_run=is_dry_run)
    content = exchange.get("request") or {}
    if "json" in content:
        body = json.dumps(content["json"]).encode()
    else:
        body = base64.b64decode(content.get("base64", "")) or content.get("text", "").encode()
    return with_delete_options(info, body, content.get("contentType", "")).is_dry_run


def _objects_in(exchange: Line) -> Iterator[RawObject]:
    """Yield the objects of a response with their API version and kind, which lists leave out."""
    content = exchange.get("answer", {}).get("json")
    if not isinstance(content, dict) or content.get("kind") in _NO_OBJECTS:
        return
    kind = str(content.get("kind") or "")
    if not (isinstance(content.get("items"), list) and kind.endswith("List")):
        yield content
        return
    for item in content["items"]:
        if isinstance(item, dict):
            yield {"apiVersion": content.get("apiVersion"), "kind": kind.removesuffix("List")} | item


def _key_of(exchange: Line, obj: Any = None) -> Key:
    metadata = metadata_of(obj) if isinstance(obj, dict) else {}
    group, plural = exchange["group"], exchange["resource"]
    namespace = "" if (group, plural) == _NAMESPACES else exchange["namespace"] or metadata.get("namespace") or ""
    return group, plural, namespace, metadata.get("name") or exchange["name"] or ""


def _importable(obj: RawObject, resource: ApiResource) -> RawObject:
    """Return a copy of an object with its kind, and for a Secret with data that the API server accepts."""
    found: RawObject = {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind, **copy.deepcopy(obj)}
    if (resource.gvk.group, resource.plural) == SECRETS and isinstance(found.get("data"), dict):
        for name, value in found["data"].items():
            if decode_base64(value) is None:
                found["data"][name] = base64.b64encode(str(value).encode()).decode()
    return found
