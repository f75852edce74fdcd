import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Never, get_type_hints

import pytest
from structlog.testing import capture_logs

from rolecall.system import blocking_work
from rolecall.system.blocking_work import kept_running, run_in_thread, running_in_background

NAME = contextvars.ContextVar("NAME", default="")


async def test_work_runs_in_thread_with_context_of_caller() -> None:
    NAME.set("caller")
    found = await run_in_thread(lambda: (threading.current_thread(), NAME.get()))
    assert found[0] is not threading.current_thread()
    assert found[1] == "caller"


async def test_exception_of_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 / 0)


async def test_cancellation_is_raised_after_work_has_ended() -> None:
    may_end, ended = threading.Event(), []

    def work() -> None:
        may_end.wait(20)
        ended.append(True)

    task = asyncio.create_task(run_in_thread(work))
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)
    assert ended == [True]


async def test_work_does_not_use_default_executor() -> None:
    together = threading.Barrier(60)
    works = asyncio.gather(*(run_in_thread(lambda: together.wait(20)) for _ in range(59)))
    await asyncio.to_thread(together.wait, 20)
    assert len(await works) == 59


async def test_work_runs_on_loop_if_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert await run_in_thread(lambda: 7) == 7


@pytest.mark.parametrize("supervisor", [kept_running, running_in_background])
def test_background_work_has_a_type_that_never_ends(supervisor: Callable[..., object]) -> None:
    """Then mypy rejects work that can return, which would be started again indefinitely."""
    assert get_type_hints(supervisor)["work"] == Callable[[], Awaitable[Never]]


async def test_failed_background_work_is_logged_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_work, "_FIRST_RESTART_SECONDS", 0.0)
    starts = 0
    started_again = asyncio.Event()

    async def work() -> Never:
        nonlocal starts
        starts += 1
        if starts == 3:
            started_again.set()
            await asyncio.Event().wait()
        raise OSError("no inotify watches left")

    with capture_logs() as logs:
        task = asyncio.create_task(kept_running("files of Thing", work))
        await asyncio.wait_for(started_again.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(each["task"], "inotify" in each["reason"]) for each in logs] == [("files of Thing", True)] * 2


async def test_background_work_has_ended_when_its_block_ends() -> None:
    events: list[str] = []
    started = asyncio.Event()

    async def work() -> Never:
        started.set()
        try:
            while True:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("ended")

    async with running_in_background("files of Thing", work):
        await asyncio.wait_for(started.wait(), 20)
        events.append("block")
    assert events == ["block", "ended"]
