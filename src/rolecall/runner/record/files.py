"""The files in ``--record-dir``: records, the discovery that they refer to, and access sets.

All files have mode 0600 and directories 0700, because a record shows the data of a role. When records take more than
``--record-dir-max-size``, the oldest are removed, those of successes before those of failures, and then the discovery
that only they can refer to. Access sets are small, one for each kind, and are never removed.
"""

import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rolecall.kube.references import GVK
from rolecall.runner.record.document import Document
from rolecall.runner.record.run_record import RunRecord
from rolecall.system.files import DiskBudget, make_own_directory, write_private

SUFFIX: Final = ".jsonl"
FAILED_SUFFIX: Final = f".failed{SUFFIX}"
DISCOVERY: Final = "discovery"
ACCESS: Final = "access"
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9.-]+")
_NAME_CHARACTERS: Final = 100
_ROUNDING: Final = timedelta(milliseconds=1)
"""Added to the time of a file: it may be less precise than a name, which has microseconds."""


@dataclass(slots=True)
class RecordFiles:
    """Writes to one directory, from several threads. ``max_bytes`` limits the total size of records."""

    directory: Path
    max_bytes: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _budget: DiskBudget | None = None
    """The records in the directory; None before the first write."""

    def write(self, record: RunRecord, document: Document) -> Path:
        """Write the record of a run and return its file. Raise OSError."""
        is_failed = record.ending.outcome == "failed"
        parts = (record.gvk.kind.lower(), record.key.namespace, record.key.name)
        what = "-".join(_UNSAFE.sub("_", part) for part in parts if part)[:_NAME_CHARACTERS]
        name = f"{_time_in_name(record.started)}-{what}-{record.ident}"  # sorts by time
        path = self.directory / (name + (FAILED_SUFFIX if is_failed else SUFFIX))
        content = document.text.encode()
        with self._lock:
            self._make_directory(self.directory / DISCOVERY)
            for digest, body in document.discovery.items():
                self._store_discovery(digest, body, record.started)
            budget = self._known_records()
            write_private(path, content)
            budget.add(path, len(content), is_failed=is_failed)
            if budget.remove_surplus(newest=path):
                self._remove_unused_discovery(budget)
        return path

    def write_access(self, gvk: GVK, content: Mapping[str, Any]) -> None:
        """Write the access set of a kind. Raise OSError."""
        name = "_".join(part for part in (gvk.kind, gvk.version, gvk.group) if part)
        with self._lock:
            self._make_directory(self.directory / ACCESS)
            write_private(self.directory / ACCESS / f"{name}.json", json.dumps(content, indent=1) + "\n")

    def _store_discovery(self, digest: str, body: bytes, used_at: datetime) -> None:
        """Write new discovery; the time of its file is the start of the last run that used it."""
        stored = self.directory / DISCOVERY / f"{digest.replace(':', '-')}.json"
        is_new = not stored.exists()
        if is_new:
            write_private(stored, body)
        if is_new or stored.stat().st_mtime < used_at.timestamp():
            os.utime(stored, (used_at.timestamp(),) * 2)

    def _remove_unused_discovery(self, budget: DiskBudget) -> None:
        oldest = budget.oldest()
        for stored in (self.directory / DISCOVERY).glob("*.json"):
            last_use = datetime.fromtimestamp(stored.stat().st_mtime, UTC) + _ROUNDING
            if oldest is None or _time_in_name(last_use) < oldest.name:
                stored.unlink(missing_ok=True)

    def _make_directory(self, path: Path) -> None:
        for each in (self.directory, path):  # a directory created as a parent doesn't get the mode
            make_own_directory(each)

    def _known_records(self) -> DiskBudget:
        if self._budget is None:
            self._budget = DiskBudget(self.max_bytes, lambda path: path.unlink(missing_ok=True))
            for path in sorted(self.directory.glob(f"*{SUFFIX}")):  # names start with the time of the record
                self._budget.add(path, path.stat().st_size, is_failed=path.name.endswith(FAILED_SUFFIX))
        return self._budget


def _time_in_name(when: datetime) -> str:
    return f"{when:%Y%m%dT%H%M%S.%f}Z"
