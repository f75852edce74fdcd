import json
import os
import sys
from pathlib import Path

import pytest
from bench.operator_process import STARTED, running

READY = {"msg": "Workers started", "level": "info", "ts": "2999-01-01T00:00:00+00:00"}
TALKS = "import sys, signal; sys.stderr.write(sys.argv[1]); sys.stderr.flush(); signal.pause()"


def command(*lines: object) -> tuple[str, ...]:
    """Return the command of an operator that logs these lines and waits for its end."""
    return (sys.executable, "-c", TALKS, "".join(json.dumps(line) + "\n" for line in lines))


async def test_an_operator_is_ready_at_the_time_of_its_log_line_and_stopped_at_the_end(tmp_path: Path) -> None:
    with running(command(READY), tmp_path, os.environ) as operator:
        assert await operator.ready() > 900 * 365 * 86400
        assert operator.memory_mib > 0
    assert operator.process.returncode is not None


async def test_operator_with_plain_text_in_its_log_is_started_too(tmp_path: Path) -> None:
    with running(command("Starting workers"), tmp_path, os.environ, tmp_path / "log") as operator:
        assert await operator.logged(STARTED) == '"Starting workers"'
    assert (tmp_path / "log").read_text() == '"Starting workers"\n'


async def test_an_operator_that_warns_is_not_measured(tmp_path: Path) -> None:
    warning = {"msg": "Forbidden", "level": "warning", "ts": READY["ts"]}
    with (
        running(command(warning, READY), tmp_path, os.environ) as operator,
        pytest.raises(RuntimeError, match="Forbidden"),
    ):
        await operator.ready()


async def test_an_operator_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    with (
        running((sys.executable, "-c", "raise SystemExit('no cluster')"), tmp_path, os.environ) as operator,
        pytest.raises(RuntimeError, match=r"exited with 1(.|\n)*no cluster"),
    ):
        await operator.ready()


async def test_log_of_an_operator_without_an_expected_line_is_in_the_error(tmp_path: Path) -> None:
    with running(command("one line"), tmp_path, os.environ) as operator:
        await operator.logged("one line")
        with pytest.raises(RuntimeError, match=r"not within 0 s: the operator logs 'other'(.|\n)*one line"):
            await operator.logged("other", 0)
