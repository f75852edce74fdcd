"""The records that the page shows: masked and read back in a thread, and kept for a while, for they do not change."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.dashboard.sources import Kind
from rolecall.runner.record.reader import StoredRecord, read_text
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import RunRecord
from rolecall.system.blocking_work import in_thread

MOST_STORED: Final = 8


@dataclass(slots=True)
class Stories:
    """Reads the records in memory, one at a time: whoever asks for many must not keep the operator from its work."""

    recorder: Recorder | None
    _stored: OrderedDict[tuple[str, ObjectKey, str], StoredRecord] = field(default_factory=OrderedDict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def last(self, kind: Kind, key: ObjectKey) -> StoredRecord | None:
        """Return the record of the last run of an object, None if there is none."""
        records = self._records(kind, key)
        return await self._read(kind, records[-1]) if records else None

    async def run(self, kind: Kind, key: ObjectKey, ident: str) -> StoredRecord | None:
        """Return the record of a run, None if there is none, or if it is in memory no more."""
        found = next((record for record in self._records(kind, key) if record.ident == ident), None)
        return await self._read(kind, found) if found is not None else None

    def _records(self, kind: Kind, key: ObjectKey) -> tuple[RunRecord, ...]:
        return self.recorder.memory.runs(kind.gvk, key) if self.recorder is not None else ()

    async def _read(self, kind: Kind, record: RunRecord) -> StoredRecord | None:
        place = kind.id, record.key, record.ident
        async with self._turn:
            if place not in self._stored and self.recorder is not None:
                # It may have been dropped while others had their turn.
                if not any(each is record for each in self._records(kind, record.key)):
                    return None
                document = await self.recorder.document(kind.watched.watch, record)
                self._stored[place] = await in_thread(partial(read_text, document.text, Path(record.ident)))
                while len(self._stored) > MOST_STORED:
                    self._stored.popitem(last=False)
            return self._stored[place]
