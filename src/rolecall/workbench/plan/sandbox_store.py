"""Puts objects into the shadow's etcd as they are in the source, with their uid, status, times and managed fields.

The API server would give each object that is created a new uid and an empty status. It reads from etcd whatever can be
decoded, JSON included, so an object that is stored directly is served as it was. The keys are those of kube-apiserver
(``pkg/kubeapiserver/default_storage_factory_builder.go`` and ``apiextensions-apiserver``).

The API server answers a list from its cache as soon as the cache has come to etcd's revision, and takes for granted
that each revision changes one object. So the last change of several is always a revision of its own: a list that begins
after it has all of them.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.workbench.plan.source import SourceError

MAX_OPERATIONS: Final = 100
MAX_TRANSACTION_BYTES: Final = 1 << 20
"""Below etcd's own limits: 128 operations and 1.5 MiB for a request."""

DEFINITIONS: Final = "apiextensions.k8s.io/customresourcedefinitions"
"""Where the CustomResourceDefinitions are, below the prefix of all resources."""

_PREFIX: Final = "/registry"
_NAMES: Final = {
    ("", "replicationcontrollers"): "controllers",
    ("", "endpoints"): "services/endpoints",
    ("", "services"): "services/specs",
    ("", "nodes"): "minions",
    ("networking.k8s.io", "ingresses"): "ingress",
}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a resource; ``is_custom`` if a CustomResourceDefinition defines the resource."""

    resource: ApiResource
    obj: RawObject
    is_custom: bool = False

    @property
    def etcd_key(self) -> str:
        """The key under which the API server looks for it."""
        group, plural = self.resource.gvk.group, self.resource.plural
        kind = f"{group}/{plural}" if self.is_custom else _NAMES.get((group, plural), plural)
        key = ObjectKey.of_object(self.obj)
        return "/".join(part for part in (_PREFIX, kind, key.namespace, key.name) if part)

    def to_json(self) -> bytes:
        """Return what is stored: all but the version, which is that of the store."""
        metadata = {name: value for name, value in metadata_of(self.obj).items() if name != "resourceVersion"}
        gvk = self.resource.gvk
        whole = {**self.obj, "apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
        return json.dumps(whole, separators=(",", ":")).encode()


class EtcdStore:
    """The etcd of a shadow, through the JSON gateway on its socket. Close it at the end."""

    def __init__(self, socket: Path) -> None:
        # A path of a socket has at most 107 bytes.
        path = min(str(socket), os.path.relpath(socket), key=len)
        self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def put(self, objects: Iterable[StoredObject]) -> None:
        """Store objects; what does not fit into one transaction is stored in several. Raises SourceError."""
        puts = ({"key": _text(each.etcd_key), "value": _text(each.to_json())} for each in objects)
        await self._change({"request_put": put} for put in puts)

    async def revision(self) -> int:
        """Return the revision of the last write. Raises SourceError."""
        answer = await self._ask("range", {"key": _text(_PREFIX), "keys_only": True})
        return int(answer["header"]["revision"])

    async def remove_newer(self, revision: int, *, except_below: tuple[str, ...] = ()) -> None:
        """Remove what was stored first after a revision, apart from some resources. Raises SourceError."""
        every = {"key": _text(f"{_PREFIX}/"), "range_end": _text(f"{_PREFIX}0"), "keys_only": True}
        answer = await self._ask("range", {**every, "min_create_revision": revision + 1})
        keys = [base64.b64decode(each["key"]).decode() for each in answer.get("kvs") or ()]
        kept = tuple(f"{_PREFIX}/{name}" for name in except_below)
        await self._change({"request_delete_range": {"key": _text(key)}} for key in keys if not key.startswith(kept))

    async def _change(self, operations: Iterable[dict[str, Any]]) -> None:
        for batch in _batches(operations):
            await self._ask("txn", {"success": batch})

    async def _ask(self, what: str, question: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"http://etcd/v3/kv/{what}", json=question) as response:
            if response.status != 200:  # noqa: PLR2004 - OK
                raise SourceError(f"the shadow cannot keep what is imported: etcd answered {await response.text()}")
            answer: dict[str, Any] = await response.json()
            return answer


def _batches(operations: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield operations in as few batches as possible, the last one in a batch of its own."""
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
