import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rolecall.runner.config.content import Content, PlaybookContent, RoleContent
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.runs import content as content_files
from rolecall.runner.runs import content as content_watch
from rolecall.runner.runs.content import digests_of, watch_content
from rolecall.runner.runs.content import watched_directories as directories_of
from tests.integration.things import THING


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Give the directory "files" of the role in the temporary directory."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_a_file_that_cannot_be_read_to_its_end_is_not_read(tmp_path: Path, files: Path) -> None:
    os.mkfifo(files / "pipe")
    (files / "gone").symlink_to("nowhere")
    assert set(digests_of([RoleContent(tmp_path)])) == {files / "pipe"}


def test_a_large_file_has_changed_when_it_was_written(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_files, "_LARGE_BYTES", 3)
    (files / "large").write_text("1234")
    before = digests_of([RoleContent(tmp_path)])
    os.utime(files / "large", (1, 1))
    assert digests_of([RoleContent(tmp_path)]) != before


def test_a_small_file_has_changed_when_its_content_differs(tmp_path: Path, files: Path) -> None:
    (files / "small").write_text("1234")
    before = digests_of([RoleContent(tmp_path)])
    os.utime(files / "small", (1, 1))
    assert digests_of([RoleContent(tmp_path)]) == before
    (files / "small").write_text("4321")
    assert digests_of([RoleContent(tmp_path)]) != before


def test_a_role_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert digests_of([RoleContent(tmp_path / "gone")]) == {}


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
async def watching(content: Content, changed: asyncio.Event) -> AsyncIterator[None]:
    """Watch a role or playbook while the block lasts."""
    task = asyncio.create_task(watch_content(Watch(THING, content), changed.set))
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


async def noticed(content: Content, file: Path, seen: list[str]) -> set[str]:
    """Change a file until it is noticed; return the names of all files of which a change was logged until then."""
    changed = asyncio.Event()
    async with watching(content, changed), asyncio.timeout(20):
        await keep_writing(file, changed)
    return {Path(file).name for file in seen}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the files of which a change is logged."""
    found: list[str] = []
    monkeypatch.setattr(content_watch.logger, "info", lambda _message, files: found.extend(files), raising=False)
    return found


async def test_a_changed_file_is_noticed_at_any_depth(role: Path, seen: list[str]) -> None:
    (role / "files" / "a" / "b").mkdir(parents=True)
    assert await noticed(RoleContent(role), role / "files" / "a" / "b" / "c", seen) == {"c"}


@pytest.mark.parametrize("name", ["tasks/main.yml", "library/own.py", "filter_plugins/own.py", "templates/own.conf"])
async def test_what_a_role_consists_of_is_noticed(role: Path, seen: list[str], name: str) -> None:
    (role / name).parent.mkdir(exist_ok=True)
    assert await noticed(RoleContent(role), role / name, seen) == {Path(name).name}


@pytest.mark.usefixtures("role")
@pytest.mark.parametrize(
    "name", ["site.yml", "more.yaml", "vars/own.yml", "group_vars/all.yml", "roles/thing/tasks/x.yml"]
)
async def test_what_a_playbook_consists_of_is_noticed(tmp_path: Path, seen: list[str], name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    assert await noticed(PlaybookContent(tmp_path / "site.yml"), tmp_path / name, seen) == {Path(name).name}


async def test_what_python_and_editors_leave_is_no_change(role: Path, seen: list[str]) -> None:
    (role / "library" / "__pycache__").mkdir(parents=True)
    beside = [role / "library" / "__pycache__" / "filter.cpython-311.pyc", role / "tasks" / "main.yml.swp"]
    assert await noticed_despite(beside, RoleContent(role), role / "tasks" / "main.yml", seen) == {"main.yml"}


async def test_what_a_run_writes_beside_its_role_is_no_change(role: Path, seen: list[str]) -> None:
    (role / "work").mkdir()
    beside = [role / "work" / "state.yml", role / "result.yml"]
    assert await noticed_despite(beside, RoleContent(role), role / "tasks" / "main.yml", seen) == {"main.yml"}


async def test_work_files_beside_a_playbook_are_no_change(tmp_path: Path, role: Path, seen: list[str]) -> None:
    (tmp_path / "runner" / "env").mkdir(parents=True)
    (role / "work").mkdir()
    beside = [tmp_path / "runner" / "env" / "extravars", tmp_path / "log.txt", role / "work" / "state.yml"]
    content = PlaybookContent(tmp_path / "site.yml")
    assert await noticed_despite(beside, content, tmp_path / "site.yml", seen) == {"site.yml"}


async def test_a_file_that_is_written_as_it_was_is_no_change(role: Path, seen: list[str]) -> None:
    (role / "files").mkdir()
    (role / "files" / "same").write_text("same")
    beside = [role / "files" / "same"]
    assert await noticed_despite(beside, RoleContent(role), role / "tasks" / "main.yml", seen) == {"main.yml"}


async def noticed_despite(beside: list[Path], content: Content, file: Path, seen: list[str]) -> set[str]:
    """Write other files, too, with the content "same", before and after a change of ``file`` is noticed."""
    changed = asyncio.Event()
    async with watching(content, changed), asyncio.timeout(20):
        await keep_writing(file, changed)
        for other in beside:
            await asyncio.to_thread(other.write_text, "same")
        changed.clear()
        await keep_writing(file, changed)
    return {Path(file).name for file in seen}
