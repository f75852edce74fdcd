"""The comparison of existing projects (bench/field) on an example project, with rolecall as its own peer."""

import subprocess
import sys
from pathlib import Path

from tests.integration.example_projects import MEMCACHED
from tests.integration.operators import ANSIBLE_OPERATOR, PROJECT

ANY_PORTS = ("--argument=--proxy-port=0", "--argument=--user-metrics-port=0")


def test_project_run_by_rolecall_and_itself_has_equal_outcomes_and_objects(tmp_path: Path) -> None:
    sample = "config/samples/cache_v1alpha1_memcached.yaml"
    command = [sys.executable, "-m", "bench.field", f"{MEMCACHED.path}={sample}", *ANY_PORTS]
    command += ["--peer", ANSIBLE_OPERATOR[0], "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, _, row = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line
    )
    found = dict(zip(head, row, strict=True))
    assert found["outcome, rolecall"] == found["outcome, peer"] == "Successful"
    assert min(float(found[f"{what}, peer"]) for what in ("seconds", "CPU seconds", "peak MiB")) > 0
    equal, _, rest = found["objects"].partition(" ")
    assert (int(equal) >= 3, rest) == (True, "equal"), done.stdout  # the object, a Deployment, and a ConfigMap at least
    assert "Deployment.apps field/memcached-sample-memcached" in (tmp_path / "memcached-peer.yaml").read_text()
