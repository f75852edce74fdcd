"""Writes objects to the sandbox's etcd as they are in the source: with uid, status, times and managed fields.

The API server would give each created object a new uid and an empty status. It reads from etcd anything that can be
decoded, including JSON, so it serves an object that is stored directly as it was. The keys are those of kube-apiserver
(``pkg/kubeapiserver/default_storage_factory_builder.go`` and ``apiextensions-apiserver``).

The API server answers a list from its cache as soon as the cache has reached etcd's revision, and assumes that each
revision changes one object. So the last of several changes always has its own revision: a list that starts after it has
all of them.

``Definitions`` creates the CustomResourceDefinitions of the source as they are, except for a conversion webhook, which
the sandbox cannot reach: of such a kind, the version requested first is stored, and no other version can be used.
"""

import asyncio
import base64
import copy
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import Any, Final

import aiohttp

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ConflictError, KubeError, UnknownKindError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.plan.sandbox_sources import Source, SourceError

MAX_OPERATIONS: Final = 100
MAX_TRANSACTION_BYTES: Final = 1 << 20
"""Below etcd's own limits: 128 operations and 1.5 MiB for a request."""

DEFINITIONS: Final = "apiextensions.k8s.io/customresourcedefinitions"
"""The location of the CustomResourceDefinitions, below the prefix of all resources."""

_PREFIX: Final = "/registry"
_NAMES: Final = {
    ("", "replicationcontrollers"): "controllers",
    ("", "endpoints"): "services/endpoints",
    ("", "services"): "services/specs",
    ("", "nodes"): "minions",
    ("networking.k8s.io", "ingresses"): "ingress",
}

SERVED_WITHIN_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05
DEFINITION_KIND: Final = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
_KEPT_METADATA: Final = ("name", "labels", "annotations")

_MAX_SOCKET_BYTES = 107
"""The maximum length of the path of a socket, see unix(7)."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a resource; ``is_custom`` if a CustomResourceDefinition defines the resource."""

    resource: ApiResource
    obj: RawObject
    is_custom: bool = False

    @property
    def key(self) -> ObjectKey:
        """The key of the object."""
        return ObjectKey.of_object(self.obj)

    @property
    def etcd_key(self) -> str:
        """The key under which the API server expects it."""
        group, plural = self.resource.gvk.group, self.resource.plural
        kind = f"{group}/{plural}" if self.is_custom else _NAMES.get((group, plural), plural)
        return "/".join(part for part in (_PREFIX, kind, self.key.namespace, self.key.name) if part)

    def to_json(self) -> bytes:
        """Return the stored form, without the resource version, which comes from the store."""
        metadata = {name: value for name, value in metadata_of(self.obj).items() if name != "resourceVersion"}
        gvk = self.resource.gvk
        whole = {**self.obj, "apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
        return json.dumps(whole, separators=(",", ":")).encode()


class EtcdStore:
    """The etcd of a sandbox, accessed through the JSON gateway on its socket. Close it at the end."""

    def __init__(self, path: Path) -> None:
        # A relative path means another file as soon as the working directory changes.
        self._path = str(path) if len(os.fsencode(path)) <= _MAX_SOCKET_BYTES else os.path.relpath(path)
        self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._path))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def put(self, objects: Iterable[StoredObject]) -> None:
        """Store objects, in several transactions if they don't fit into one. Raises SourceError."""
        puts = ({"key": _text(each.etcd_key), "value": _text(each.to_json())} for each in objects)
        await self._write({"request_put": put} for put in puts)

    def revision(self) -> int:
        """Return the current revision, before anything else in this process runs. Raises OSError."""
        connection = HTTPConnection("etcd")
        with socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.connect(self._path)
            connection.request("POST", "/v3/kv/range", json.dumps({"key": _text(_PREFIX), "count_only": True}))
            return int(json.load(connection.getresponse())["header"]["revision"])

    async def content(self, revision: int = 0, *, except_below: tuple[str, ...] = ()) -> dict[str, str]:
        """Return all values of a revision in base64 by their keys, except for some resources; 0 is the current one.

        Raises SourceError.
        """
        key_range = {"key": _text(f"{_PREFIX}/"), "range_end": _text(f"{_PREFIX}0")}
        found = await self._send("range", {**key_range, "revision": revision})
        values = {base64.b64decode(each["key"]).decode(): each["value"] for each in found.get("kvs") or ()}
        kept = tuple(f"{_PREFIX}/{name}" for name in except_below)
        return {key: value for key, value in values.items() if not key.startswith(kept)}

    async def change(self, puts: Mapping[str, str], removed: Iterable[str]) -> None:
        """Store values in base64 by their keys, and remove keys. Raises SourceError."""
        await self._write(
            chain(
                ({"request_put": {"key": _text(key), "value": value}} for key, value in puts.items()),
                ({"request_delete_range": {"key": _text(key)}} for key in removed),
            )
        )

    async def _write(self, operations: Iterable[dict[str, Any]]) -> None:
        for batch in _batches(operations):
            await self._send("txn", {"success": batch})

    async def _send(self, operation: str, content: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"http://etcd/v3/kv/{operation}", json=content) as response:
            if response.status != 200:  # noqa: PLR2004 - OK
                raise SourceError(f"the sandbox cannot store imported objects: etcd: {await response.text()}")
            found: dict[str, Any] = await response.json()
            return found


def _batches(operations: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield operations in as few batches as possible, the last one in its own batch."""
    batch: list[dict[str, Any]] = []
    size = 0
    for operation in operations:
        length = len(operation.get("request_put", {}).get("value", ""))
        if batch and (len(batch) == MAX_OPERATIONS or size + length > MAX_TRANSACTION_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += length
    for rest in (batch[:-1], batch[-1:]):
        if rest:
            yield rest


def _text(content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return base64.b64encode(raw).decode()


@dataclass(slots=True)
class Definitions:
    """The definitions of the source in a sandbox; their names are added to ``imported``."""

    source: Source
    client: Client
    imported: set[str] = field(default_factory=set)
    _groups: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], RawObject] = field(default_factory=dict)
    _stored: dict[tuple[str, str], str] = field(default_factory=dict)
    """The usable version of each kind with a conversion webhook."""

    def is_custom(self, resource: ApiResource) -> bool:
        """Return whether a definition defines a resource."""
        return (resource.gvk.group, resource.plural) in self._known

    async def install(self, group: str) -> None:
        """Create the definitions of a group, once. Raises SourceError."""
        if group in self._groups:
            return
        for definition in await self.source.definitions(group):
            await self._create(definition)
        self._groups.add(group)

    async def resource(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return a resource as the sandbox serves it, None if it does not. Raises SourceError."""
        await self.install(group)
        await self._use_version(group, version, plural)
        try:
            return await self.client.resource_for_path(group, version, plural)
        except KubeError as error:
            raise SourceError(f"the resources of {group}/{version} in the sandbox are unknown: {error}") from error

    async def resource_of(self, gvk: GVK) -> ApiResource | None:
        """Return the resource of a kind, None if the sandbox does not serve it. Raises SourceError."""
        try:
            resource = await self.client.resource(gvk)
        except UnknownKindError:
            return None
        except KubeError as error:
            raise SourceError(f"the resource of {gvk} in the sandbox is unknown: {error}") from error
        await self._use_version(gvk.group, gvk.version, resource.plural)
        return resource

    async def _create(self, definition: RawObject) -> None:
        created = without_webhook(definition)
        name, spec = created["metadata"]["name"], created["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        self.imported.add(name)
        try:
            try:
                await self.client.create(created)
            except ConflictError:  # left from another source of the same sandbox
                found = await self.client.get(DEFINITION_KIND, ObjectKey.of_object(created))
                await self.client.replace({**found, "spec": spec})
        except KubeError as error:
            raise SourceError(f"the definition {name} cannot be imported: {error}") from error
        self._known[group, plural] = definition
        for version in (each["name"] for each in spec["versions"] if each.get("served")):
            await self._wait_until_served(group, version, plural)

    async def _wait_until_served(self, group: str, version: str, plural: str) -> None:
        for _ in range(int(SERVED_WITHIN_SECONDS / POLL_SECONDS)):
            if await self.client.resource_for_path(group, version, plural):
                return
            await asyncio.sleep(POLL_SECONDS)  # discovery has no watch
        raise SourceError(f"the sandbox did not serve {plural}.{group}/{version} within {SERVED_WITHIN_SECONDS:.0f} s")

    async def _use_version(self, group: str, version: str, plural: str) -> None:
        """Store the objects of a kind with a conversion webhook in the requested version."""
        definition = self._known.get((group, plural))
        if definition is None or not has_webhook(definition):
            return
        used = self._stored.setdefault((group, plural), version)
        if used != version:
            raise SourceError(
                f"{plural}.{group} is requested in the versions {used} and {version}: the webhook that converts"
                " between them cannot be reached from a sandbox; use one version in the role and in watches.yaml"
            )
        key = ObjectKey("", f"{plural}.{group}")
        current = await self.client.get(DEFINITION_KIND, key)
        versions = current["spec"]["versions"]
        if next((each["name"] for each in versions if each["storage"]), None) != version:
            changed = [{**each, "storage": each["name"] == version} for each in versions]
            await self.client.patch(DEFINITION_KIND, key, {"spec": {"versions": changed}})


def has_webhook(definition: RawObject) -> bool:
    """Return whether a webhook converts between the versions of a definition."""
    conversion: dict[str, Any] = definition["spec"].get("conversion") or {}
    return conversion.get("strategy") == "Webhook"


def without_webhook(definition: RawObject) -> RawObject:
    """Return a definition that can be created: without status, and without a conversion webhook."""
    spec = copy.deepcopy(definition["spec"])
    if has_webhook(definition):
        spec["conversion"] = {"strategy": "None"}
    metadata = {name: value for name, value in metadata_of(definition).items() if name in _KEPT_METADATA}
    return {"apiVersion": DEFINITION_KIND.api_version, "kind": DEFINITION_KIND.kind, "metadata": metadata, "spec": spec}
