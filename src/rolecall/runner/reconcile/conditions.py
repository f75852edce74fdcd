"""The conditions of a primary: their types, and the list of them while it is changed.

Conditions of other controllers are kept as they are. A condition keeps its place in the list, and its
``lastTransitionTime`` for as long as its status stays the same.
"""

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Status = dict[str, Any]
RUNNING, SUCCESSFUL, FAILURE, PAUSED = "Running", "Successful", "Failure", "Paused"
IN_PROGRESS, INTERRUPTED = "Running", "Interrupted"
"""The reasons of ``Running`` during a run, and after a run that the operator interrupted."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time of a new status, and the generation of the object that it is about."""

    now: datetime
    generation: int

    @property
    def text(self) -> str:
        """The time as Kubernetes writes it, in whole seconds."""
        return self.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_of(status: Status, kind: str) -> dict[str, Any] | None:
    """Return the condition of a type, None when there is none."""
    return next((item for item in conditions_of(status) if item.get("type") == kind), None)


def conditions_of(status: Status) -> list[dict[str, Any]]:
    """Return the conditions of a status, without entries that are not mappings."""
    found = status.get("conditions")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def parse_time(text: object) -> datetime | None:
    """Return a parsed time, UTC if it has no zone; None if the text is not a time."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=time.tzinfo or UTC) if time else None


class ConditionList:
    """The conditions of a status, to be changed one by one; ``items`` is the new list."""

    def __init__(self, status: Status, stamp: Stamp) -> None:
        self.items = copy.deepcopy(conditions_of(status))
        self._stamp = stamp

    def remove(self, kind: str) -> None:
        """Remove a condition, if there is one of that type."""
        self.items = [item for item in self.items if item.get("type") != kind]

    def change_status(self, kind: str, value: str) -> None:
        """Change the status of an existing condition; its reason, message and result stay."""
        for item in self.items:
            if item.get("type") == kind and item.get("status") != value:
                item.update(status=value, lastTransitionTime=self._stamp.text)

    def restore(self, condition: dict[str, Any]) -> None:
        """Replace the condition of the same type, if there is one, by an earlier version of it."""
        self.items = [
            copy.deepcopy(condition) if item.get("type") == condition["type"] else item for item in self.items
        ]

    def observe(self, kind: str) -> None:
        """Note in a condition which generation it is about, if the kind counts them."""
        for item in self.items:
            if item.get("type") == kind and self._stamp.generation:
                item["observedGeneration"] = self._stamp.generation

    def put(self, kind: str, value: str, reason: str, message: str, result: dict[str, Any] | None = None) -> None:
        """Set a condition, or add it at the end."""
        old = next((item for item in self.items if item.get("type") == kind), None)
        keeps_time = old is not None and old.get("status") == value and old.get("lastTransitionTime")
        new = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": old["lastTransitionTime"] if old and keeps_time else self._stamp.text,
            **({"ansibleResult": result} if result else {}),
        }
        if old is None:
            self.items.append(new)
        else:
            self.items[self.items.index(old)] = new
