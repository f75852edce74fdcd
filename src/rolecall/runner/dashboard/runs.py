"""One run as a waterfall: its tasks and requests, each with its position in the run's time.

Records are masked and read back in a thread, and cached for a while, because they don't change.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.dashboard.objects import replica_view
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.dashboard.views import ManifestView, RunView
from rolecall.runner.record.reader import MANIFESTS, StoredRecord, read_text
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.timeline import TimelineRequest, as_yaml, timeline_of
from rolecall.system.blocking_work import run_in_thread

MAX_REQUESTS: Final = 1000
MAX_TASKS: Final = 1000
MAX_LINES: Final = 300
"""The number of shown lines of the diffs of a request, and of a status."""

MAX_STORED: Final = 8


def run_view(sources: Sources, kind: Kind, record: StoredRecord) -> RunView:
    """Return the run of a record."""
    head, end, watch = record.head, record.end, record.head["watch"]
    metadata = head["object"].get("metadata", {})
    lines = sources.recorder.history.of(kind.gvk, ObjectKey.of_object(head["object"]))
    prune: Mapping[str, Any] = end.get("prune") or {}
    tasks, rest = timeline_of(replace(record, exchanges=record.exchanges[:MAX_REQUESTS]))
    return RunView(
        replica=replica_view(sources),
        kind=kind.id,
        kind_name=kind.gvk.kind,
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        id=str(head["job"]),
        started=head["started"],
        seconds=end["seconds"],
        outcome=end["outcome"],
        because=tuple(head["causes"]),
        first_because=next((line.first_because for line in lines if line.id == head["job"]), ()),
        content=str(watch.get("role") or watch.get("playbook") or ""),
        is_finalizing=bool(head["finalizing"]),
        is_complete=bool(end["complete"]),
        requeue_after_seconds=end["requeueAfterSeconds"],
        prune={name: tuple(texts) for name, texts in prune.items() if name != MANIFESTS},
        manifests=tuple(map(_manifest, prune.get(MANIFESTS, ()))),
        failures=tuple(end["failures"]),
        status=cut_lines(as_yaml(end["status"])) if end["status"] else (),
        tasks=tuple(replace(task, requests=tuple(map(_shortened, task.requests))) for task in tasks[:MAX_TASKS]),
        other_requests=tuple(map(_shortened, rest)),
        left_out=max(0, len(record.exchanges) - MAX_REQUESTS),
    )


def _manifest(obj: RawObject) -> ManifestView:
    title = f"{obj.get('kind', '')} {ObjectKey.of_object(obj)}"
    return ManifestView(title, cut_lines(as_yaml(obj)))


def _shortened(request: TimelineRequest) -> TimelineRequest:
    return replace(request, effects=cut_lines(request.effects))


def cut_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the first ``MAX_LINES`` lines, and how many more there are."""
    left = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"… {left} more lines") if left > 0 else tuple(lines)


@dataclass(slots=True)
class RecordCache:
    """Reads records in memory, one at a time: a client that requests many must not delay the operator's work."""

    recorder: Recorder
    _stored: OrderedDict[tuple[str, ObjectKey, str], StoredRecord] = field(default_factory=OrderedDict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get(self, kind: Kind, key: ObjectKey, ident: str = "") -> StoredRecord | None:
        """Return the record of a run of an object, or that of its last run; None if it isn't in memory."""
        async with self._lock:
            found = [each for each in self.recorder.memory.runs(kind.gvk, key) if ident in ("", each.ident)]
            if not found:
                return None
            place = kind.id, key, found[-1].ident
            if place not in self._stored:
                document = await self.recorder.document(kind.watched.watch, found[-1])
                self._stored[place] = await run_in_thread(partial(read_text, document.text, Path(found[-1].ident)))
                while len(self._stored) > MAX_STORED:
                    self._stored.popitem(last=False)
            return self._stored[place]
