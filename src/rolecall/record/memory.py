"""The last record of each object, in memory, within a budget.

What does not fit any more is the record that was stored longest ago. A record that is larger than the budget is not
kept.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from rolecall.kube.references import GVK, ObjectKey
from rolecall.record.bodies import Bodies
from rolecall.record.run_record import RunRecord


@dataclass(slots=True)
class RecordMemory:
    """The last records; with a budget of 0 bytes none is kept."""

    budget_bytes: int
    bodies: Bodies = field(default_factory=Bodies)
    _records: OrderedDict[tuple[GVK, ObjectKey], RunRecord] = field(default_factory=OrderedDict)
    _entries_bytes: int = 0

    def add(self, record: RunRecord) -> None:
        """Keep a record of a run that has ended, in place of the one before it."""
        self.forget(record.gvk, record.key)
        self._records[record.gvk, record.key] = record
        self._entries_bytes += record.size_bytes
        while self._records and self._entries_bytes + self.bodies.stored_bytes > self.budget_bytes:
            self.forget(*next(iter(self._records)))

    def get(self, gvk: GVK, key: ObjectKey) -> RunRecord | None:
        """Return the last record of an object, None if there is none."""
        return self._records.get((gvk, key))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the record of an object."""
        record = self._records.pop((gvk, key), None)
        if record is not None:
            self._entries_bytes -= record.size_bytes
            record.drop()
