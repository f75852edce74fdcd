"""A record as the source of a shadow: it answers with what the record shows of the cluster before the run's own writes.

What the record does not show counts as not there; ``is_known`` and ``is_listed`` tell which questions those are. The
values of Secrets are placeholders in a record, and stay so.
"""

import base64
import binascii
import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.kube.text_selectors import selects
from rolecall.runner.record.reader import StoredRecord
from rolecall.workbench.replay.recorded_kinds import RecordedKinds
from rolecall.workbench.replay.recorded_objects import Key, ListQuery, RecordedObjects

_NAMESPACES: Final = ("", "namespaces")
_SECRETS: Final = ("", "secrets")
_NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"}}
_SERVICE_ACCOUNT: Final = {"apiVersion": "v1", "kind": "ServiceAccount"}
"""That of pods which name no other one."""


class RecordSource:
    """A ``rolecall.workbench.plan.source.Source``; ``definitions`` are the CustomResourceDefinitions of the project."""

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
    if (resource.gvk.group, resource.plural) == _SECRETS and isinstance(found.get("data"), dict):
        found["data"] = dict(_decodable(found["data"]))
    return found


def _decodable(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            yield name, base64.b64encode(str(value).encode()).decode()
        else:
            yield name, value
