"""What commands that run roles print besides their output."""

import subprocess
import sys

PROGRAM = """
from rolecall.cli.terminal import configure_quiet_logs
from rolecall.system.logs import get_logger
configure_quiet_logs()
for name in ("run", "reconciler", "proxy"):
    get_logger(name).error(f"Said by {name}")
    get_logger(name).info("Detail")
"""


def test_a_failed_run_is_a_result_and_not_logged_beside_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "Said by proxy" in line
