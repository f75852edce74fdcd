"""The comparison of existing projects (bench/field) on an example project, with rolecall as its own peer."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.integration.example_projects import MEMCACHED
from tests.integration.operators import ANSIBLE_OPERATOR, PROJECT


def test_project_run_by_rolecall_and_itself_has_equal_outcomes_and_objects(tmp_path: Path) -> None:
    case: dict[str, object] = {"project": str(MEMCACHED.path), "object": "config/samples/cache_v1alpha1_memcached.yaml"}
    case |= {"arguments": ["--proxy-port=0", "--user-metrics-port=0"]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump([case]))
    command = [sys.executable, "-m", "bench.field", str(tmp_path / "cases.yaml")]
    command += ["--peer", ANSIBLE_OPERATOR[0], "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line
    )
    assert len(rows) == 3  # seconds, CPU seconds, memory
    assert min(float(row[head.index(name)]) for row in rows for name in ("warm", "peer")) > 0
    assert "- warm: Successful\n- peer: Successful\n" in done.stdout
    found = re.search(r"^memcached, objects: (\d+) equal$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert int(found[1]) >= 3  # the object, a Deployment, and a ConfigMap at least
    assert "Deployment.apps field/memcached-sample-memcached" in (tmp_path / "memcached-peer.yaml").read_text()
