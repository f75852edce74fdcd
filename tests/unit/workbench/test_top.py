"""``rolecall top``: the table for given JSON, and the program with a real page, with and without a terminal."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from rolecall.runner.config.settings import Settings
from rolecall.runner.dashboard.server import Guard, dashboard_application, serving_dashboard
from rolecall.runner.dashboard.views import Query, kind_id
from rolecall.runner.serving.authentication import TokenReviewer
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.workbench.top import PageClient, PageError, table
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.dashboard.conftest import OPEN, Shown, shown
from tests.unit.runner.serving.test_authentication import ApiServer

__all__ = ["shown"]
URL = "http://127.0.0.1:8090"
HOSTILE = "spec\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\ud800\n[bold]"
TIMEOUT_SECONDS = 60.0
ALTERNATE, USUAL = "\x1b[?1049h", "\x1b[?1049l"


def row(name: str = "one", state: str = "succeeded", why: str = "spec.size (generation 2)") -> dict[str, Any]:
    now = time.time()
    return {
        "kind": "Foo.v1.example.com",
        "kindName": "Foo",
        "namespace": "default",
        "name": name,
        "state": state,
        "lastRun": {"started": now - 35, "because": [why], "message": ""},
        "waitsFor": {"text": "its next run", "until": now + 630, "because": []},
    }


def page(*rows: dict[str, Any], found: int | None = None) -> dict[str, Any]:
    states = dict.fromkeys(("running", "failed", "deleting", "paused", "pending", "succeeded"), 0)
    for each in rows:
        states[each["state"]] += 1
    kind = {
        "id": "Foo.v1.example.com",
        "kind": "Foo",
        "objects": len(rows),
        "states": states,
        "trouble": "",
        "asOf": time.time(),
    }
    kind |= {"running": 1, "workers": 4, "queued": 2}
    replica = {"version": "1.2.3", "runs": 1, "mostRuns": 4, "text": "This replica runs the roles."}
    found = len(rows) if found is None else found
    return {"replica": replica, "kinds": [kind], "rows": list(rows), "found": found, "pages": -(-found // 100)}


def printed(shown_page: dict[str, Any], width: int = 80, **options: Any) -> list[str]:
    console = Console(width=width, markup=False, emoji=False, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(table(URL, shown_page, console, **options))
    lines = capture.get().splitlines()
    assert all(len(line) <= width for line in lines)
    return [line.rstrip() for line in lines]


@asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[str]:
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


def answering(*answers: Any) -> web.Application:
    """Return a server with one answer after the other, the last one again and again."""
    left = list(answers)

    async def handler(request: web.Request) -> web.Response:
        answer = left.pop(0) if len(left) > 1 else left[0]
        status, text = answer if isinstance(answer, tuple) else (200, json.dumps(answer))
        return web.Response(status=status, text=text, headers={"Location": "/login", "X-Query": request.query_string})

    application = web.Application()
    application.router.add_get("/", handler)
    return application


async def objects(client: PageClient, query: Query | None = None) -> dict[str, Any]:
    return await asyncio.to_thread(client.objects, query or Query())


async def message(client: PageClient) -> str:
    """Return the error of reading the list: one line without control characters."""
    with pytest.raises(PageError) as caught:
        await objects(client)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_table_in_eighty_columns() -> None:
    shown_page = page(row("one"), row("two", "failed"))
    assert printed(shown_page) == [
        "rolecall 1.2.3  http://127.0.0.1:8090  Runs in progress: 1 of 4",
        "This replica runs the roles.",
        "Foo: 2  ✕ failed 1  ✓ succeeded 1  (workers busy: 1 of 4, queued: 2)",
        "STATE        OBJECT       LAST RUN  WHY                   WAITS FOR",
        "✓ succeeded  default/one  30 s ago  spec.size (generati…  in 10 min: its next r…",
        "✕ failed     default/two  30 s ago  spec.size (generati…  in 10 min: its next r…",
    ]


def test_names_are_whole_in_place_of_other_columns() -> None:
    name, kinds = "a" * 30, [row(), row() | {"kind": "Bar.v1.example.com", "kindName": "Bar"}]
    assert "WAITS FOR" in printed(page(*kinds))[3]
    lines = printed(page(*kinds, row(name)))
    assert lines[3].split() == ["STATE", "KIND", "OBJECT", "LAST", "RUN", "WHY"]
    assert lines[6].startswith(f"✓ succeeded  Foo   default/{name}  30 s ago  spec.si")
    assert "".join(printed(page(row("z" * 100)))).count("z") == 100


def test_no_run_and_no_object() -> None:
    waiting = row(state="pending") | {"lastRun": None}
    waiting["waitsFor"] = {"text": "its turn", "until": None, "because": ["spec.size", "an annotation"]}
    line = printed(page(waiting), width=120)[-1]
    assert line.split("  ")[:3] == ["○ pending", "default/one", "none"]
    assert line.endswith("its turn (spec.size; an annotation)")
    assert printed(page())[-1] == "No object matches."


def test_kind_that_cannot_be_listed_and_lost_operator() -> None:
    shown_page = page(row())
    shown_page["kinds"][0] |= {"trouble": "foos is forbidden", "asOf": None}
    lines = printed(shown_page, trouble="Last response 10 s ago, retrying: nothing answers")
    assert {"foos is forbidden; objects not listed yet", "Last response 10 s ago, retrying: nothing answers"} < set(
        lines
    )
    assert any("default/one" in line for line in lines)


def test_lost_watch_has_age_and_failure_has_message() -> None:
    broken = row(state="failed")
    broken["lastRun"]["message"] = "Task 'Write': forbidden"
    shown_page = page(broken)
    shown_page["kinds"][0] |= {"trouble": "API server is unreachable; retrying", "asOf": time.time() - 305}
    lines = printed(shown_page, width=120)
    assert "API server is unreachable; retrying; objects as of 5 min ago" in lines
    assert "Task 'Write': forbidden" in lines[-1]


def test_a_small_terminal_shows_what_fits_and_counts_the_rest() -> None:
    lines = printed(page(*(row(f"foo-{number}") for number in range(60)), found=200), height=24)
    assert len(lines) == 24
    assert lines[-1] == "181 more: choose with --kind, --namespace, --state and --search"
    assert len(printed(page(*(row(str(number)) for number in range(60))))) == 64


async def test_running_objects_come_first_from_all_pages() -> None:
    running = row("three", "running")
    async with served(answering(page(row("one"), row("two"), found=150), page(running))) as url:
        found = await objects(PageClient(url))
    assert [each["name"] for each in found["rows"]] == ["three", "one", "two"]


async def test_no_text_controls_the_terminal() -> None:
    async with served(answering(page(row(why=HOSTILE)))) as url:
        line = printed(await objects(PageClient(url)), width=200)[-1]
    assert "]0;owned" in line
    assert "[bold]" in line
    assert line.isprintable()


async def test_kind_is_named_with_or_without_its_group(shown: Shown) -> None:
    async with served(dashboard_application(shown.sources, OPEN)) as url:
        for wanted in (THING.kind, kind_id(THING)):
            assert await asyncio.to_thread(PageClient(url).kind_id, wanted) == kind_id(THING)
        with pytest.raises(PageError, match=rf"^--kind Other: expected one of {kind_id(THING)}$"):
            await asyncio.to_thread(PageClient(url).kind_id, "Other")


async def test_unreachable_page() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        text = await message(PageClient(url))
    assert text.startswith(f"nothing answers at {url} (Connection refused); ")
    assert "--ui-bind-address" in text
    assert "kubectl port-forward" in text


async def test_token_is_read_from_its_file_each_time(shown: Shown, tmp_path: Path) -> None:
    guard, file = Guard(TokenReviewer(ApiServer()), is_on_loopback=False), tmp_path / "token"
    async with served(dashboard_application(shown.sources, guard)) as url:
        client = PageClient(url, file)
        assert str(file) in await message(client)
        assert "needs --token-file" in await message(PageClient(url))
        file.write_text("bad\n")
        assert "(status 401)" in await message(client)
        file.write_text("good\n")
        assert (await objects(client))["found"] == 0
        file.write_text("two\nlines\n")
        assert "expected a token of one line" in await message(client)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((403, "Forbidden"), "verb get on the nonResourceURL /ui (status 403)"),
        ((200, "<h1>\x1b[2JHello</h1>"), "not the dashboard of an operator"),
        ((404, "nothing"), "status 404, 'nothing'"),
        ((302, ""), "status 302"),
        ((200, "{"), "not the dashboard"),
        ((200, "[" * 100_000), "not the dashboard"),
        ({"rows": []}, "not a dashboard of this version"),
        (page() | {"found": "3"}, "not a dashboard of this version"),
        (page() | {"rows": [1]}, "not a dashboard of this version"),
        (page(row() | {"name": {}}), "not a dashboard of this version"),
        (page(row() | {"lastRun": {"started": float("nan"), "because": []}}), "not a dashboard of this version"),
        (page() | {"rows": [row(state="sleeping")]}, "'sleeping' is not a valid State"),
    ],
)
async def test_other_answers_are_reported(answer: Any, expected: str) -> None:
    async with served(answering(answer)) as url:
        assert expected in await message(PageClient(url))


async def test_too_long_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolecall.workbench.top._MOST_BYTES", 10)
    async with served(answering(page())) as url:
        assert "not the dashboard" in await message(PageClient(url))


async def test_certificate_must_be_trusted(shown: Shown, cluster: FakeCluster, tmp_path: Path) -> None:
    settings = replace(Settings(), ui_bind_address="127.0.0.1:0", metrics_secure=True)
    async with serving_dashboard(settings, cluster, OperatorMetrics("test"), shown.sources) as port:
        url = f"https://127.0.0.1:{port}"
        assert "is not trusted" in await message(PageClient(url))
        assert (await objects(PageClient(url, verifies=False)))["found"] == 0
        assert "is it https://?" in await message(PageClient(url.replace("https", "http")))
        assert "--ca-file" in await message(PageClient(url, ca_file=tmp_path / "none"))
    async with served(answering(page())) as url:
        assert "does not speak TLS" in await message(PageClient(url.replace("http", "https")))


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8090", ""),
        ("http://[::1]:8090/", ""),
        ("https://example.com", ""),
        ("localhost:8090", "argument --url"),
        ("ftp://localhost", "argument --url"),
        ("http://a:b", "argument --url"),
        ("http://example.com", "argument --token-file"),
    ],
)
def test_url_is_checked_and_no_token_is_sent_in_the_clear(url: str, found: str) -> None:
    problem = PageClient(url, Path("token")).problem
    assert problem.startswith(found)
    assert bool(problem) is bool(found)


# The program: with a real page, in a pseudo-terminal of 80 columns or with a pipe.


@pytest.fixture
async def url(shown: Shown) -> AsyncIterator[str]:
    shown.add_run(shown.bench.tell(THING))
    shown.bench.tell(THING, name="two")
    async with served(dashboard_application(shown.sources, OPEN)) as address:
        yield address


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """Yield a pseudo-terminal. Its programs obey SIGINT, even if a background job of a shell runs the tests."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.set_blocking(ours, False)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)
    signal.signal(signal.SIGINT, before)


async def start(url: str, *arguments: str, output: int) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "rolecall", "top", "--url", url, *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=output, stderr=asyncio.subprocess.STDOUT)


async def drawn(ours: int, text: str) -> str:
    """Return the output of a terminal up to a text."""
    seen = ""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while text not in seen:
                await asyncio.sleep(0.02)
                seen += read(ours)
    except TimeoutError:
        pytest.fail(repr(seen[-3000:]))
    return seen


def read(ours: int) -> str:
    try:
        return os.read(ours, 1 << 20).decode(errors="replace")
    except BlockingIOError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_changes_are_drawn_until_a_signal(
    terminal: tuple[int, int], url: str, shown: Shown, number: signal.Signals
) -> None:
    ours, theirs = terminal
    process = await start(url, output=theirs)
    assert ALTERNATE in await drawn(ours, "default/two")
    shown.bench.tell(THING, name="three")
    await drawn(ours, "default/three")
    process.send_signal(number)
    rest = await drawn(ours, USUAL)
    assert await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS) == 130
    assert "Traceback" not in rest + read(ours)


async def test_lost_operator_is_reported_above_its_last_answer(terminal: tuple[int, int], shown: Shown) -> None:
    ours, theirs = terminal
    shown.bench.tell(THING)
    async with served(dashboard_application(shown.sources, OPEN)) as url:
        process = await start(url, output=theirs)
        await drawn(ours, "default/one")
    await drawn(ours, "retrying: nothing")
    await drawn(ours, "default/one")
    process.terminate()
    await process.wait()


async def test_once_prints_colors_on_a_terminal(terminal: tuple[int, int], url: str) -> None:
    ours, theirs = terminal
    process = await start(url, "--once", output=theirs)
    assert await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS) == 0
    seen = read(ours)
    assert "\x1b[33m○ pending" in seen
    assert "default/two" in seen
    assert ALTERNATE not in seen


async def test_no_color_environment_variable(
    terminal: tuple[int, int], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    ours, theirs = terminal
    process = await start(url, "--once", output=theirs)
    assert await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS) == 0
    assert "\x1b[33m" not in read(ours)


async def test_a_pipe_gets_the_table_once_without_colors(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("FORCE_COLOR", "1")
    process = await start(url, "--search", "two", output=asyncio.subprocess.PIPE)
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0
    assert "default/two" in text
    assert "default/one" not in text
    assert "\x1b" not in text


async def test_error_is_one_line_and_exit_code_1() -> None:
    process = await start("http://127.0.0.1:1", output=asyncio.subprocess.PIPE)
    (line,) = (await process.communicate())[0].decode().splitlines()
    assert process.returncode == 1
    assert line.startswith("rolecall top: nothing answers at http://127.0.0.1:1 (")
