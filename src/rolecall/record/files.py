"""The files of ``--record-dir``: records, the discovery that they refer to, and access sets.

All files have mode 0600 and directories 0700, because a record shows what a role works with. When records take more
than ``--record-keep``, the oldest are removed, those of successes before those of failures. Discovery and access sets
are small, and are never removed.
"""

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rolecall.disk_budget import DiskBudget
from rolecall.kube.references import GVK
from rolecall.private_files import make_own_directory, write_private
from rolecall.record.document import Document
from rolecall.record.run_record import RunRecord

SUFFIX: Final = ".jsonl"
FAILED_SUFFIX: Final = f".failed{SUFFIX}"
DISCOVERY: Final = "discovery"
ACCESS: Final = "access"
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9.-]+")
_NAME_CHARACTERS: Final = 100


@dataclass(slots=True)
class RecordFiles:
    """Writes to one directory; calls may come from several threads. ``keep_bytes`` bounds what records take."""

    directory: Path
    keep_bytes: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _budget: DiskBudget | None = None
    """The records in the directory; None before the first look."""

    def write(self, record: RunRecord, document: Document) -> Path:
        """Write the record of a run and return its file. Raises OSError."""
        is_failed = record.ending is not None and record.ending.outcome != "succeeded"
        path = self.directory / (_name_of(record) + (FAILED_SUFFIX if is_failed else SUFFIX))
        content = document.text.encode()
        with self._lock:
            self._make_directory(self.directory / DISCOVERY)
            for digest, body in document.discovery.items():
                stored = self.directory / DISCOVERY / f"{digest.replace(':', '-')}.json"
                if not stored.exists():
                    write_private(stored, body)
            budget = self._known_records()
            write_private(path, content)
            budget.add(path, len(content), is_failed=is_failed)
            budget.remove_surplus(newest=path)
        return path

    def write_access(self, gvk: GVK, content: Mapping[str, Any]) -> None:
        """Write the access set of a kind. Raises OSError."""
        folder = self.directory / ACCESS
        with self._lock:
            self._make_directory(folder)
            name = "_".join(part for part in (gvk.kind, gvk.version, gvk.group) if part)
            write_private(folder / f"{name}.json", json.dumps(content, indent=1) + "\n")

    def _make_directory(self, path: Path) -> None:
        for each in (self.directory, path):  # what is made as a parent does not get the mode
            make_own_directory(each)

    def _known_records(self) -> DiskBudget:
        if self._budget is None:
            self._budget = DiskBudget(self.keep_bytes, lambda path: path.unlink(missing_ok=True))
            for path in sorted(self.directory.glob(f"*{SUFFIX}")):  # a name begins with the time of its record
                self._budget.add(path, path.stat().st_size, is_failed=path.name.endswith(FAILED_SUFFIX))
        return self._budget


def _name_of(record: RunRecord) -> str:
    """Return a name that sorts by time and says what the run was for."""
    key = record.key
    parts = (record.gvk.kind.lower(), key.namespace, key.name)
    what = "-".join(_UNSAFE.sub("_", part) for part in parts if part)[:_NAME_CHARACTERS]
    return f"{record.started:%Y%m%dT%H%M%S.%f}Z-{what}-{record.ident}"
