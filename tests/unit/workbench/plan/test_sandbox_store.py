from pathlib import Path

import pytest
from aiohttp import web

from rolecall.workbench.plan.sandbox_store import EtcdStore


async def test_store_is_found_after_the_working_directory_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is relative to a directory nearby is shorter, but only there it means the socket."""

    async def respond(_: web.Request) -> web.Response:
        return web.json_response({})

    application = web.Application()
    application.router.add_post("/v3/kv/range", respond)
    runner = web.AppRunner(application)
    await runner.setup()
    monkeypatch.chdir(tmp_path)
    await web.UnixSite(runner, "s").start()
    store = EtcdStore(tmp_path / "s")
    monkeypatch.chdir("/")
    assert await store.content() == {}
    await store.close()
    await runner.cleanup()
