"""Notices when the files of a role or playbook change.

An object whose run failed waits for its backoff, up to minutes; a fixed role is tried at once instead. Files that
Python and editors leave beside the role (caches, swap files) are ignored.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from watchfiles import DefaultFilter, awatch

from rolecall.config.content import Content, RoleContent
from rolecall.config.watches import Watch
from rolecall.logs import get_logger

logger = get_logger("content")


def directories_of(watch: Watch) -> frozenset[Path]:
    """Return the directories of a watch: of each role, of each playbook, and the roles beside the playbook."""
    contents = [watch.content, *([watch.finalizer.content] if watch.finalizer and watch.finalizer.content else [])]
    return frozenset(path for content in contents for path in _directories(content))


def _directories(content: Content) -> Iterator[Path]:
    if isinstance(content, RoleContent):
        yield content.path.resolve()
        return
    folder = content.path.resolve().parent
    yield folder
    yield from (path for path in (folder / "roles", folder.parent / "roles") if path.is_dir())


async def watch_content(directories: frozenset[Path], on_change: Callable[[], None]) -> None:
    """Call ``on_change`` whenever a file below one of the directories has changed, until cancelled."""
    async for changes in awatch(*sorted(directories), watch_filter=DefaultFilter(), stop_event=asyncio.Event()):
        logger.info("Files of a role changed", files=sorted({path for _, path in changes})[:5])
        on_change()
