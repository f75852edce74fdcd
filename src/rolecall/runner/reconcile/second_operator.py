"""Detects another operator for the same objects, by the conditions that it writes. Sends no request.

Only this process writes the operator's conditions of an object: other replicas wait for the Lease, or hold other
shards. The status writer reads an object before it writes the status. If the conditions then differ from those that it
left there, another program has written them, most likely an operator of a second deployment. Both would undo each
other's changes, and run roles concurrently for one object.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.metadata import metadata_of, status_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.reconcile.status import FAILURE, RUNNING, SUCCESSFUL, conditions_of, is_ours
from rolecall.system.logs import get_logger

logger = get_logger("status")

HINT: Final = (
    "let only one operator watch these objects: list the Deployments of operators in all namespaces, and undeploy one, "
    "or give them different namespaces or selectors"
)
_TYPES: Final = (RUNNING, SUCCESSFUL, FAILURE)
_BY_HAND: Final = "kubectl"


@dataclass(slots=True)
class SecondOperator:
    """Reports once for a kind that another program writes the conditions of its objects."""

    gvk: GVK
    _left: dict[ObjectKey, tuple[str, int]] = field(default_factory=dict)
    """The uid of each object, and a checksum of the conditions that this operator has left there."""
    _is_reported: bool = False

    def check(self, obj: RawObject) -> None:
        """Compare the conditions of an object that was just read with those that were left there."""
        key, found = ObjectKey.of_object(obj), _checksum(obj)
        left = self._left.get(key)
        if self._is_reported or found is None or left is None or left == (uid_of(obj), found):
            return
        manager = _last_manager(obj)
        if left[0] != uid_of(obj) or manager.startswith(_BY_HAND):
            return
        self._is_reported = True
        self._left.clear()
        logger.warning(
            "Another program writes the conditions of this operator, probably a second operator; logged once",
            gvk=str(self.gvk),
            object=str(key),
            field_manager=manager,
            hint=HINT,
        )

    def left(self, obj: RawObject) -> None:
        """Remember the conditions of an object as this operator has written or read them."""
        checksum = _checksum(obj)
        if checksum is not None and not self._is_reported:
            self._left[ObjectKey.of_object(obj)] = (uid_of(obj), checksum)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object: it was deleted, another replica has it now, or a write may have failed."""
        self._left.pop(key, None)

    def forget_all(self) -> None:
        """Drop all state, because the cluster was restored."""
        self._left.clear()


def _checksum(obj: RawObject) -> int | None:
    """Return a checksum of the operator's conditions in an object, None if there are none."""
    own = [each for each in conditions_of(status_of(obj)) if each.get("type") in _TYPES and is_ours(each)]
    return zlib.crc32(json.dumps(own, sort_keys=True).encode()) if own else None


def _last_manager(obj: RawObject) -> str:
    """Return the field manager that has last written the conditions, empty if it isn't known."""
    entries = metadata_of(obj).get("managedFields")
    of_conditions = [each for each in entries if _has_conditions(each)] if isinstance(entries, list) else []
    return str(max(of_conditions, key=lambda each: str(each.get("time")))["manager"]) if of_conditions else ""


def _has_conditions(entry: Any) -> bool:
    fields = entry.get("fieldsV1") if isinstance(entry, Mapping) and entry.get("manager") else None
    of_status = fields.get("f:status") if isinstance(fields, Mapping) else None
    return isinstance(of_status, Mapping) and "f:conditions" in of_status
