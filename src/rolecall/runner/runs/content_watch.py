"""Notices when the content of a role or playbook changes.

An object whose run failed waits for its backoff, up to minutes; a fixed role is tried soon instead. What the run
itself writes beside the role, and what Python and editors leave there (caches, swap files), does not count.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from watchfiles import DefaultFilter, awatch

from rolecall.runner.config.content import Content
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs import content_files
from rolecall.runner.runs.content_files import digests_of
from rolecall.system.blocking_work import in_thread
from rolecall.system.logs import get_logger

logger = get_logger("content")


def contents_of(watch: Watch) -> tuple[Content, ...]:
    """Return the role or playbook of a watch, and that of its finalizer."""
    own = watch.finalizer.content if watch.finalizer else None
    return (watch.content, own) if own else (watch.content,)


def directories_of(watch: Watch) -> frozenset[Path]:
    """Return the directories of a watch: of each role, of each playbook, and the roles beside the playbook."""
    return frozenset(path for content in contents_of(watch) for path in content_files.directories_of(content))


async def watch_content(watch: Watch, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` whenever the content of the watch's role or playbook has changed, until cancelled."""
    contents = contents_of(watch)
    before = await in_thread(lambda: digests_of(contents))
    directories = sorted(directories_of(watch))
    async for _ in awatch(*directories, watch_filter=DefaultFilter(), stop_event=asyncio.Event()):
        now = await in_thread(lambda: digests_of(contents))
        if now != before:
            changed = [path for path in before.keys() | now.keys() if before.get(path) != now.get(path)]
            before = now
            logger.info("Files of a role changed", files=sorted(map(str, changed))[:5])
            on_change()
