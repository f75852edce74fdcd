import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rolecall.config.content import PlaybookContent, RoleContent
from rolecall.config.watches import Finalizer, Watch
from rolecall.runs import content_watch
from rolecall.runs.content_watch import directories_of, watch_content
from tests.integration.things import THING


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Give a role's folder."""
    (tmp_path / "roles" / "thing" / "tasks").mkdir(parents=True)
    return tmp_path / "roles" / "thing"


def test_a_role_is_its_own_folder(role: Path) -> None:
    assert directories_of(Watch(THING, RoleContent(role))) == {role.resolve()}


def test_a_playbook_is_its_folder_and_the_roles_beside_and_above_it(tmp_path: Path, role: Path) -> None:
    playbooks = tmp_path / "playbooks"
    (playbooks / "roles").mkdir(parents=True)
    watch = Watch(THING, PlaybookContent(playbooks / "thing.yml"))
    assert directories_of(watch) == {playbooks.resolve(), (playbooks / "roles").resolve(), role.parent.resolve()}


def test_a_finalizers_own_content_is_watched_too(tmp_path: Path, role: Path) -> None:
    goodbye = tmp_path / "roles" / "goodbye"
    with_own = Watch(THING, RoleContent(role), finalizer=Finalizer("a/b", RoleContent(goodbye), {}))
    assert directories_of(with_own) == {role.resolve(), goodbye.resolve()}
    with_vars = Watch(THING, RoleContent(role), finalizer=Finalizer("a/b", None, {"a": 1}))
    assert directories_of(with_vars) == {role.resolve()}


def test_a_link_is_followed_to_where_the_files_are(tmp_path: Path, role: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(role)
    assert directories_of(Watch(THING, RoleContent(link))) == {role.resolve()}


@contextlib.asynccontextmanager
async def watching(role: Path, changed: asyncio.Event) -> AsyncIterator[None]:
    """Watch a role while the block lasts."""
    task = asyncio.create_task(watch_content(frozenset({role}), changed.set))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def keep_writing(file: Path, changed: asyncio.Event) -> None:
    """Write a file again and again until the change is noticed: the watch may not have begun at the first one."""
    number = 0
    while not changed.is_set():
        number += 1
        await asyncio.to_thread(file.write_text, f"# {number}\n")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), 0.2)


async def test_a_changed_file_is_noticed_at_any_depth(role: Path) -> None:
    changed = asyncio.Event()
    async with watching(role, changed), asyncio.timeout(10):
        await keep_writing(role / "tasks" / "main.yml", changed)
    assert changed.is_set()


async def test_what_python_leaves_beside_the_files_is_no_change(role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(content_watch.logger, "info", lambda _message, files: seen.extend(files), raising=False)
    changed = asyncio.Event()
    (role / "__pycache__").mkdir()
    async with watching(role, changed), asyncio.timeout(10):
        await asyncio.to_thread((role / "__pycache__" / "filter.pyc").write_bytes, b"")
        await asyncio.to_thread((role / "tasks" / "main.yml.swp").write_text, "")
        await keep_writing(role / "tasks" / "main.yml", changed)
    assert {Path(file).name for file in seen} == {"main.yml"}
