"""The comparison of existing projects (bench/field) on an example project, with rolecall as its own peer."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.integration.example_projects import MEMCACHED
from tests.integration.operators import ANSIBLE_OPERATOR, PROJECT
from tests.support.homes import with_home


def test_project_run_by_rolecall_and_itself_has_equal_outcomes_and_objects(tmp_path: Path) -> None:
    """The project uses the old flag for leader election; its role tries to replace files of the caller."""
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube/config").write_text("the caller's clusters")
    project = shutil.copytree(MEMCACHED.path, tmp_path / "memcached")
    attempt = {"ansible.builtin.shell": f"rm -rf {home}/.kube; eval 'rm -rf ~root/.kube'", "ignore_errors": True}
    with (project / "roles/memcached/tasks/main.yml").open("a") as tasks:
        tasks.write(yaml.safe_dump([attempt]))
    case: dict[str, object] = {"project": str(project), "object": "config/samples/cache_v1alpha1_memcached.yaml"}
    case |= {"arguments": ["--proxy-port=0", "--user-metrics-port=0", "--enable-leader-election"]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump([case]))
    command = [sys.executable, "-m", "bench.field", str(tmp_path / "cases.yaml")]
    command += ["--peer", ANSIBLE_OPERATOR[0], "--keep", str(tmp_path)]
    command = with_home(home, tmp_path / "passwd", command)
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (home / ".kube/config").read_text() == "the caller's clusters"
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
