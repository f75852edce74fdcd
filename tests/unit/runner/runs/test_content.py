import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import watchfiles
from structlog.testing import capture_logs
from watchfiles._rust_notify import WatchfilesRustInternalError

from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.runs import content as content_module
from rolecall.runner.runs.content import (
    code_of,
    digest_of_content,
    digests_of,
    files_of,
    mentions,
    watch_contents,
    watched_directories,
)
from rolecall.system import file_changes
from tests.support.things import THING


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Return the directory of a role."""
    (tmp_path / "roles" / "thing" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "thing" / "files").mkdir()
    return tmp_path / "roles" / "thing"


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("same")


def test_role_consists_of_its_parts_without_caches_and_work_files(role: Path) -> None:
    parts = {"tasks/main.yml", "library/own.py", "filter_plugins/own.py", "templates/own.conf", "files/a/b/c"}
    write(role, *parts)
    write(role, "library/__pycache__/own.cpython-311.pyc", "tasks/main.yml.swp", "work/state.yml", "result.yml")
    assert {str(path.relative_to(role)) for path in files_of(RoleContent(role))} == parts


def test_playbook_consists_of_its_neighbors_and_roles_without_work_files(tmp_path: Path, role: Path) -> None:
    parts = {"site.yml", "more.yaml", "vars/own.yml", "group_vars/all.yml", "roles/thing/tasks/x.yml"}
    write(tmp_path, *parts)
    write(tmp_path, "runner/env/extravars", "log.txt")
    write(role, "work/state.yml")
    found = files_of(PlaybookContent(tmp_path / "site.yml"))
    assert {str(path.relative_to(tmp_path)) for path in found} == parts


@pytest.mark.parametrize("name", ["roles/default/web", "roles/of/some/one", "roles/thing/inner"])
def test_roles_in_directories_below_belong_to_a_playbook(tmp_path: Path, name: str) -> None:
    """A playbook includes them as ``default/web``."""
    write(tmp_path, "site.yml", f"{name}/tasks/main.yml")
    write(tmp_path, "roles/.git/x/tasks/main.yml", "roles/thing/files/x/tasks/a.yml")
    content, path = PlaybookContent(tmp_path / "site.yml"), tmp_path / name / "tasks" / "main.yml"
    found = {str(path.relative_to(tmp_path)) for path in files_of(content)}
    assert found == {"site.yml", f"{name}/tasks/main.yml", "roles/thing/files/x/tasks/a.yml"}
    before, recorded = code_of(content), digest_of_content((content,))
    path.write_text("other")
    assert code_of(content).digest != before.digest
    assert digest_of_content((content,)) != recorded
    assert mentions((content,), b"other")


@pytest.mark.parametrize("name", ["roles/other", "roles/default/other", "roles/thing/inner", "roles/thing"])
def test_code_of_a_role_has_the_roles_that_it_may_include(tmp_path: Path, role: Path, name: str) -> None:
    path = tmp_path / name / "defaults" / "main.yml"
    write(path.parent, "main.yml")
    before = code_of(RoleContent(role))
    assert str(path) in before.files
    assert code_of(RoleContent(role)) == before
    path.write_text("prunes")
    assert code_of(RoleContent(role)).digest != before.digest
    assert mentions((RoleContent(role),), b"prunes")


def test_links_in_a_role_are_no_directories_to_follow_and_never_end_a_search(tmp_path: Path, role: Path) -> None:
    """A link to itself can't be followed, one to a directory is none of the role's files; a directory has any name."""
    write(role, "files/own", "files/kept~/inner")
    write(tmp_path, "elsewhere/other")
    (role / "files" / "linked").symlink_to(tmp_path / "elsewhere")
    (role.parent / "loop").symlink_to("loop")
    assert {Path(path).name for path in code_of(RoleContent(role)).files} == {"own", "inner"}
    (role / "files" / "loop").symlink_to("loop")
    found = {str(path.relative_to(role)) for path in files_of(RoleContent(role))}
    assert found == {"files/own", "files/kept~/inner", "files/loop"}
    assert {path.name for path in digests_of([RoleContent(role)])} == {"own", "inner"}


def test_code_is_the_same_in_another_directory(tmp_path: Path) -> None:
    for place in ("laptop", "image"):
        write(tmp_path / place / "roles", "thing/tasks/main.yml", "other/tasks/main.yml", "default/web/tasks/main.yml")
    digests = {code_of(RoleContent(tmp_path / place / "roles" / "thing")).digest for place in ("laptop", "image")}
    assert len(digests) == 1


def test_role_that_is_no_neighbor_of_roles_has_no_code_of_other_directories(tmp_path: Path) -> None:
    write(tmp_path, "project/thing/tasks/main.yml", "project/other/place/tasks/main.yml")
    found = code_of(RoleContent(tmp_path / "project" / "thing")).files
    assert found == {str(tmp_path / "project/thing/tasks/main.yml")}


def test_unreadable_files_are_left_out_and_special_files_are_not_read(role: Path) -> None:
    os.mkfifo(role / "files" / "pipe")
    (role / "files" / "missing").symlink_to("nowhere")
    assert set(digests_of([RoleContent(role), RoleContent(role / "missing")])) == {role / "files" / "pipe"}


def test_large_file_has_changed_when_it_was_written(role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "_LARGE_BYTES", 3)
    write(role, "files/large")
    before = digests_of([RoleContent(role)])
    os.utime(role / "files" / "large", (1, 1))
    assert digests_of([RoleContent(role)]) != before


def test_small_file_has_changed_when_its_content_differs(role: Path) -> None:
    write(role, "files/small")
    before = digests_of([RoleContent(role)])
    os.utime(role / "files" / "small", (1, 1))
    assert digests_of([RoleContent(role)]) == before
    (role / "files" / "small").write_text("other")
    assert digests_of([RoleContent(role)]) != before


def test_playbook_is_watched_with_the_roles_next_to_and_above_it(tmp_path: Path, role: Path) -> None:
    playbooks = tmp_path / "playbooks"
    (playbooks / "roles").mkdir(parents=True)
    watch = Watch(THING, PlaybookContent(playbooks / "thing.yml"))
    assert watched_directories(watch) == {playbooks.resolve(), (playbooks / "roles").resolve(), role.parent.resolve()}


def test_role_is_watched_with_the_finalizers_own_and_links_are_followed(tmp_path: Path, role: Path) -> None:
    link, goodbye = tmp_path / "link", tmp_path / "roles" / "goodbye"
    link.symlink_to(role)
    with_own = Watch(THING, RoleContent(link), finalizer=Finalizer("a/b", RoleContent(goodbye), {}))
    assert watched_directories(with_own) == {role.resolve(), goodbye.resolve()}
    with_vars = Watch(THING, RoleContent(link), finalizer=Finalizer("a/b", None, {"a": 1}))
    assert watched_directories(with_vars) == {role.resolve()}


async def test_watch_reports_changed_content_only(role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        content_module.logger, "info", lambda _message, **fields: logged.extend(fields["files"]), raising=False
    )
    write(role, "files/same")
    changed = asyncio.Event()
    watching = asyncio.create_task(watch_contents([(Watch(THING, RoleContent(role)), changed.set)]))

    async def change() -> None:
        """Write a file repeatedly until the change is reported: the watch may not have started at the first one."""
        changed.clear()
        for number in range(100):
            (role / "tasks" / "main.yml").write_text(f"# {number}\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.2)
                return
        raise TimeoutError

    try:
        await change()
        write(role, "files/same", "result.yml")
        await change()
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    assert {Path(path).name for path in logged} == {"main.yml"}


@pytest.mark.parametrize(
    "error",
    [
        OSError("OS file watch limit reached"),
        WatchfilesRustInternalError("Error creating recommended watcher: Too many open files (os error 24)"),
    ],
)
async def test_changes_are_noticed_without_notifications_of_the_kernel(
    role: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A user may have no inotify watches or instances left; the operator polls and logs this."""
    write(role, "tasks/main.yml")

    def awatch(*directories: Path, force_polling: bool = False, **options: Any) -> AsyncIterator[object]:
        if not force_polling:
            raise error
        return watchfiles.awatch(*directories, force_polling=True, **options)

    monkeypatch.setattr(file_changes, "awatch", awatch)
    monkeypatch.setattr(file_changes, "_POLL_MILLISECONDS", 50)
    changed = asyncio.Event()
    with capture_logs() as logs:
        task = asyncio.create_task(watch_contents([(Watch(THING, RoleContent(role)), changed.set)]))
        async with asyncio.timeout(60):
            number = 0
            while not changed.is_set():
                number += 1
                (role / "tasks/main.yml").write_text(f"version {number}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert logs[0]["reason"] == str(error)


@pytest.mark.parametrize("force_polling", [False, True])
async def test_change_before_the_watcher_is_ready_is_noticed(
    role: Path, monkeypatch: pytest.MonkeyPatch, *, force_polling: bool
) -> None:
    write(role, "tasks/main.yml")

    def awatch(*directories: Path, **options: Any) -> AsyncIterator[object]:
        write(role, "tasks/more.yml")
        return watchfiles.awatch(*directories, **{**options, "force_polling": force_polling})

    monkeypatch.setattr(file_changes, "awatch", awatch)
    monkeypatch.setattr(file_changes, "_LOOK_MILLISECONDS", 50)
    changed = asyncio.Event()
    task = asyncio.create_task(watch_contents([(Watch(THING, RoleContent(role)), changed.set)]))
    await asyncio.wait_for(changed.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_watches_share_one_watcher_and_only_those_with_a_change_are_told(
    role: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each watcher is an inotify instance, of which a user has few."""
    other = tmp_path / "roles" / "other"
    write(role, "tasks/main.yml")
    write(other, "tasks/main.yml")
    watched: list[set[Path]] = []

    async def awatch(*directories: Path, **_options: Any) -> AsyncIterator[object]:
        watched.append(set(directories))
        write(other, "tasks/more.yml")
        yield {(watchfiles.Change.added, str(other.resolve() / "tasks/more.yml"))}
        await asyncio.Event().wait()

    monkeypatch.setattr(file_changes, "awatch", awatch)
    told: asyncio.Queue[str] = asyncio.Queue()
    followers = [(Watch(THING, RoleContent(each)), partial(told.put_nowait, each.name)) for each in (role, other)]
    task = asyncio.create_task(watch_contents(followers))
    assert await asyncio.wait_for(told.get(), 60) == "other"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert told.empty()
    assert watched == [watched_directories(followers[0][0]) | watched_directories(followers[1][0])]
