"""The command for judges from outside, on a small checkout that has the layout of kubernetes.core."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import yaml

from tests.integration.operators import PROJECT

NAMESPACE = {"kubernetes.core.k8s": {"kind": "Namespace", "name": "small"}}
CONFIG_MAP = {"kubernetes.core.k8s": {"kind": "ConfigMap", "name": "one", "namespace": "small"}}
IN_A_RUN = "lookup('env', 'K8S_AUTH_KUBECONFIG') != ''"
TARGETS = {
    "applies": [
        NAMESPACE,
        CONFIG_MAP,
        CONFIG_MAP | {"register": "again"},
        {"assert": {"that": "again is not changed"}},
    ],
    "differs": [{"name": "Fail in a run", "assert": {"that": f"not ({IN_A_RUN})"}}],
    "fails": [{"name": "Need a real pod", "fail": {"msg": "no pod here"}}],
}


def checkout(directory: Path) -> None:
    """Make a checkout with the installed collection's plugins and the small targets."""
    spec = find_spec("ansible_collections")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = Path(next(iter(spec.submodule_search_locations))) / "kubernetes/core"
    made = directory / "kubernetes.core"
    for name, tasks in TARGETS.items():
        target = made / "tests/integration/targets" / name
        (target / "tasks").mkdir(parents=True)
        (target / "tasks/main.yml").write_text(yaml.safe_dump(tasks))
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": [name]}
        (target / "playbook.yaml").write_text(yaml.safe_dump([play]))
    for name in ("plugins", "meta"):
        (made / name).symlink_to(installed / name)


def test_targets_run_directly_cold_and_warm_and_a_difference_fails_the_command(tmp_path: Path) -> None:
    checkout(tmp_path)
    command = [sys.executable, "-m", "bench.judges", str(tmp_path), "--judge", "kubernetes.core"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    row, _, *details = done.stdout.splitlines()[2:]
    assert row == "| kubernetes.core | 3 | 2 of 3 | 1 of 2 | 1 of 2 | 1 |"
    differs, fails = details
    assert "differs: differs; cold failed in *Fail in a run*: " in differs
    assert "; warm failed in *Fail in a run*: " in differs
    assert "fails: not possible here; direct failed in *fails : Need a real pod*: " in fails
