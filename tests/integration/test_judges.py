"""The command for judges from outside, on a small checkout that has the layout of kubernetes.core."""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import yaml

from tests.integration.operators import PROJECT
from tests.support.homes import with_home

NAMESPACE = {"kubernetes.core.k8s": {"kind": "Namespace", "name": "small"}}
CONFIG_MAP = {"kubernetes.core.k8s": {"kind": "ConfigMap", "name": "one", "namespace": "small"}}
IN_A_RUN = "lookup('env', 'K8S_AUTH_KUBECONFIG') != ''"
TARGETS: dict[str, Sequence[object]] = {
    "applies": [
        NAMESPACE,
        CONFIG_MAP,
        CONFIG_MAP | {"register": "again"},
        {"assert": {"that": "again is not changed"}},
    ],
    "differs": [{"name": "Fail in a run", "assert": {"that": f"not ({IN_A_RUN})"}}],
    "fails": [{"name": "Need a real pod", "fail": {"msg": "no pod here"}}],
}


def checkout(directory: Path, targets: Mapping[str, Sequence[object]]) -> None:
    """Make a checkout with the installed collection's plugins and small targets."""
    spec = find_spec("ansible_collections")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = Path(next(iter(spec.submodule_search_locations))) / "kubernetes/core"
    made = directory / "kubernetes.core"
    for name, tasks in targets.items():
        target = made / "tests/integration/targets" / name
        (target / "tasks").mkdir(parents=True)
        (target / "tasks/main.yml").write_text(yaml.safe_dump(list(tasks)))
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": [name]}
        (target / "playbook.yaml").write_text(yaml.safe_dump([play]))
    for name in ("plugins", "meta"):
        shutil.copytree(installed / name, made / name)


def hostile_tasks(home: Path, outside: Path) -> list[dict[str, object]]:
    """Return tasks that try to replace files in a home directory, and to write outside, and ignore failures."""
    attempts: list[dict[str, object]] = [
        {"ansible.builtin.copy": {"content": "taken", "dest": "~/.kube/config"}},
        {"ansible.builtin.copy": {"content": "taken", "dest": f"{home}/.kube/config"}},
        {"ansible.builtin.file": {"path": str(home), "state": "absent"}},
        {"ansible.builtin.file": {"src": str(outside), "dest": "{{ playbook_dir }}/link", "state": "link"}},
        {"ansible.builtin.copy": {"content": "taken", "dest": "{{ playbook_dir }}/link/taken"}},
        {"ansible.builtin.shell": f"echo taken > {outside}/new"},
        {"ansible.builtin.shell": f"echo taken > {PROJECT}/taken-by-judges"},
        {"ansible.builtin.shell": 'eval "echo taken > ~$(id -un)/.kube/config"'},
        {"ansible.builtin.shell": f"umount {home}; rm -rf {home}/.kube"},
        {"ansible.builtin.shell": f"rm -rf /proc/[0-9]*/root{home}/.kube"},
    ]
    kept: dict[str, object] = {"ansible.builtin.copy": {"content": "mine", "dest": "{{ playbook_dir }}/own"}}
    return [kept, *({**each, "ignore_errors": True} for each in attempts)]


def content(directory: Path) -> dict[str, str]:
    """Return the content of all files of a directory."""
    return {str(path): path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()}


def test_targets_run_directly_cold_and_warm_and_a_difference_fails_the_command(tmp_path: Path) -> None:
    """One target is hostile; the caller's home directory, of a password file in a mount namespace, stays as it is."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    for path, text in ((home / ".kube/config", "the caller's clusters"), (outside / "file", "the caller's")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    checkout(tmp_path, {**TARGETS, "hostile": hostile_tasks(home, outside)})
    command = [sys.executable, "-m", "bench.judges", str(tmp_path), "--judge", "kubernetes.core"]
    command = with_home(home, tmp_path / "passwd", command)
    before = content(tmp_path)
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert content(tmp_path) == before
    assert not (PROJECT / "taken-by-judges").exists()
    row, _, *details = done.stdout.splitlines()[2:]
    assert row == "| kubernetes.core | 4 | 3 of 4 | 2 of 3 | 2 of 3 | 1 |"
    differs, fails = details
    assert "differs: differs; cold failed in `Fail in a run`: " in differs
    assert "; warm failed in `Fail in a run`: " in differs
    assert "fails: not possible here; direct failed in `fails : Need a real pod`: " in fails
