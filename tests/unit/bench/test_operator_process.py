import asyncio
import json
import sys
from pathlib import Path

import pytest
from bench.operator_process import PlayStarts, running
from bench.stage import until

READY = {"msg": "Workers started", "level": "info", "ts": "2999-01-01T00:00:00+00:00"}
TALKS = (
    "import sys, signal; sys.stderr.write(sys.argv[1]); sys.stderr.flush(); print('7 ns/a', flush=True); signal.pause()"
)


def command(*lines: object) -> tuple[str, ...]:
    """Return the command of an operator that logs these lines, starts one play and waits for its end."""
    return (sys.executable, "-c", TALKS, "".join(json.dumps(line) + "\n" for line in lines))


async def test_the_first_start_and_the_last_of_each_object_are_known_and_all_are_counted() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(b"1000000000 ns/a\n2000000000 ns/b\n3500000000 ns/a\n")
    stream.feed_eof()
    plays = PlayStarts()
    await plays.read(stream)
    assert (plays.first, plays.last, plays.count) == (1.0, {"ns/a": 3.5, "ns/b": 2.0}, 3)


async def test_an_operator_is_ready_at_the_time_of_its_log_line_and_stopped_at_the_end(tmp_path: Path) -> None:
    async with running(command(READY), tmp_path, {}) as operator:
        assert await operator.ready() > 900 * 365 * 86400
        await until(lambda: "ns/a" in operator.plays.last, 10, "the play starts")
        assert operator.memory_bytes > 0
    assert operator.process.returncode is not None


async def test_an_operator_that_warns_is_not_measured(tmp_path: Path) -> None:
    warning = {"msg": "Forbidden", "level": "warning", "ts": READY["ts"]}
    async with running(command(warning, READY), tmp_path, {}) as operator:
        with pytest.raises(RuntimeError, match="Forbidden"):
            await operator.ready()


async def test_an_operator_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    async with running((sys.executable, "-c", "raise SystemExit('no cluster')"), tmp_path, {}) as operator:
        with pytest.raises(RuntimeError, match="no cluster"):
            await operator.ready()
