"""Changes of files, with the kernel's notifications or without.

A user has a limited number of inotify watches and instances on a machine, and all containers with its id share them.
Without a free one, files are checked every few seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from watchfiles import BaseFilter, awatch

from rolecall.system.logs import get_logger

logger = get_logger("files")

WATCH_ENDED = "watchfiles has stopped reporting changes"
"""The message of the error that a caller raises if ``changes_in`` ends."""

_POLL_MILLISECONDS = 5000
_LOOK_MILLISECONDS = 5000


async def changes_in(
    directories: Iterable[Path], watch_filter: BaseFilter | None = None
) -> AsyncIterator[frozenset[Path]]:
    """Yield the changed files in these directories, all files or those that a filter of watchfiles selects.

    Also yields once without files, some seconds after the start: a file may have changed before the watcher was ready.
    Raises OSError if a directory doesn't exist.
    """
    paths, has_looked = sorted(directories), False
    options: dict[str, Any] = {"watch_filter": watch_filter, "stop_event": asyncio.Event()}
    options |= {"rust_timeout": _LOOK_MILLISECONDS, "yield_on_timeout": True}
    while True:
        try:
            async for changes in awatch(*paths, **options):
                if changes or not has_looked:
                    has_looked = has_looked or not changes
                    yield frozenset(Path(path) for _, path in changes)
        except (OSError, RuntimeError) as error:  # watchfiles raises one for a lack of watches, the other for instances
            if "force_polling" in options:
                raise
            logger.warning("Failed to subscribe to changed files; checking them every five seconds", reason=str(error))
            options |= {"force_polling": True, "poll_delay_ms": _POLL_MILLISECONDS}
        else:
            return
