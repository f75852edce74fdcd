"""Replays the records of files and directories in one shadow, in their order.

What cannot be replayed does not stop the others. The shadow is started when the first record needs it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from rolecall.runner.config.watches import Watch
from rolecall.runner.record.files import SUFFIX
from rolecall.runner.record.reader import RecordError, StoredRecord, UnreadableRecordError, read_record
from rolecall.workbench.replay.replayer import Replayer, replaying
from rolecall.workbench.replay.request import ReplayRequest
from rolecall.workbench.replay.results import BadRecord, Replay, Replays

Report = Callable[[str], None]


async def replay_all(request: ReplayRequest, paths: Iterable[Path], report: Report) -> Replays:
    """Return what came of the records; a directory means all records in it. Raises ControlPlaneError, KubeError."""
    files = [file for path in paths for file in _files(path)]
    found: list[Replay | BadRecord] = []
    async with AsyncExitStack() as stack:
        replayer: Replayer | None = None
        for number, file in enumerate(files, 1):
            readable = _readable(request, file)
            if isinstance(readable, BadRecord):
                found.append(readable)
                continue
            if replayer is None:
                replayer = await stack.enter_async_context(replaying(request, report))
            found.append(await replayer.replay(*readable))
            report(f"Replayed {number} of {len(files)}: {file.name}")
    return Replays(tuple(found))


def _files(path: Path) -> Iterator[Path]:
    """Yield the records of a directory, the oldest first, else the path itself."""
    if path.is_dir():
        yield from sorted(each for each in path.iterdir() if each.name.endswith(SUFFIX)) or [path]
    else:
        yield path


def _readable(request: ReplayRequest, file: Path) -> tuple[StoredRecord, Watch] | BadRecord:
    if file.is_dir():
        text = f"{file}: there is no record in it: expected the directory of 'rolecall run --record-dir'"
        return BadRecord(file, text, UnreadableRecordError.exit_code)
    try:
        record = read_record(file)
    except RecordError as error:
        return BadRecord(file, str(error), error.exit_code)
    watch = request.watch_for(record)
    return watch if isinstance(watch, BadRecord) else (record, watch)
