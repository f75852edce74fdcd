"""Silently lost connections. These tests need root, or a system that permits users to create namespaces."""

import subprocess
import sys

NEW_NETWORK = ("unshare", "--user", "--map-root-user", "--net")


def test_watch_on_a_dead_connection_ends_within_45_seconds() -> None:
    command = [*NEW_NETWORK, sys.executable, "-m", "tests.e2e.dead_connection"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stderr
    assert 10 < float(ended.stdout) < 45
