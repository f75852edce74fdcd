"""Changes of files, with the kernel's notifications or without.

A user has a limited number of inotify watches and instances on a machine, and all containers with its id share them.
Without a free one, files are checked every few seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from watchfiles import BaseFilter, awatch

from rolecall.system.logs import get_logger

logger = get_logger("files")

_POLL_MILLISECONDS = 5000


async def changes_in(directories: Iterable[Path], watch_filter: BaseFilter | None = None) -> AsyncIterator[object]:
    """Yield after changes of files in these directories, of all files or of those that a filter of watchfiles selects.

    Raises OSError if a directory doesn't exist.
    """
    paths, never = sorted(directories), asyncio.Event()
    try:
        async for change in awatch(*paths, watch_filter=watch_filter, stop_event=never):
            yield change
    except (OSError, RuntimeError) as error:  # watchfiles raises one for a lack of watches, the other for instances
        logger.warning("No notifications of changed files; checking them every five seconds", reason=str(error))
        async for change in awatch(
            *paths, watch_filter=watch_filter, stop_event=never, force_polling=True, poll_delay_ms=_POLL_MILLISECONDS
        ):
            yield change
