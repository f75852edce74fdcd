import asyncio
import contextvars
import threading

import pytest

from rolecall.system.blocking_work import run_in_thread

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
