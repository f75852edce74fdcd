import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rolecall.workbench.controlplane import ComponentFailedError, ControlPlane, ControlPlaneError, cluster
from rolecall.workbench.controlplane import cluster as startup
from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.controlplane.components import COMPONENTS, HOST
from rolecall.workbench.controlplane.state import find_in_directory
from tests.support.world import TIMEOUT_SECONDS

POLL_SECONDS = 0.05
GRACE_SECONDS = 30.0
"""The defaults of pods."""
Kubectl = Callable[..., str]


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {TIMEOUT_SECONDS:.0f} s for {what}"
        time.sleep(POLL_SECONDS)


def _kubectl(kubeconfig: Path, *arguments: str, stdin: object = None) -> str:
    program = find_binaries(print)["kubectl"]
    text = None if stdin is None else json.dumps(stdin)
    command = [str(program), "--kubeconfig", str(kubeconfig), *arguments]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise AssertionError(answer.stderr)
    return answer.stdout


def _read(kubeconfig: Path, *arguments: str) -> Any:
    return json.loads(_kubectl(kubeconfig, "get", "-o", "json", *arguments))


def _rolecall(*arguments: str, state_directory: Path) -> list[str]:
    command, *rest = arguments
    return [sys.executable, "-m", "rolecall.cli.main", "cluster", command, "--state-dir", str(state_directory), *rest]


def _left_over(state_directory: Path) -> list[int]:
    """Return the processes of control planes below the directory, and fail if a directory of one is left."""
    directories = list(state_directory.iterdir()) if state_directory.exists() else []
    assert directories == []
    commands = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in commands.splitlines() if f"{state_directory}/" in line and "kube" in line]


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """Return its own namespace to the test; it goes with the control plane."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    _kubectl(control_plane.kubeconfig, "create", "namespace", name)
    account = ("get", "serviceaccount", "default", "--namespace", name)
    # Without it, the API server rejects pods.
    _wait_for(lambda: _is_allowed(control_plane.kubeconfig, *account), "the namespace's service account")
    return name


@pytest.fixture
def state_directory(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory for the state of control planes; processes still running there at the end are stopped."""
    directory = tmp_path / "state"
    yield directory
    for path in list(directory.iterdir()) if directory.exists() else []:
        if path.is_dir():
            ControlPlane(path.name, state_directory=directory).stop()


def test_kubectl_can_read_the_version_of_the_server(control_plane: ControlPlane) -> None:
    versions = json.loads(_kubectl(control_plane.kubeconfig, "version", "-o", "json"))
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]
    assert versions["serverVersion"]["minor"].isdigit()


def test_start_returns_with_ready_nodes_and_populated_namespaces(state_directory: Path) -> None:
    with ControlPlane("ready", state_directory=state_directory, nodes=2) as one:
        nodes = _read(one.kubeconfig, "nodes")["items"]
        assert [node["spec"].get("taints", []) for node in nodes] == [[], []]
        assert _read(one.kubeconfig, "serviceaccount", "default")["metadata"]["namespace"] == "default"
        assert _read(one.kubeconfig, "pods", "--all-namespaces")["items"] == []


def test_a_deployment_becomes_available(control_plane: ControlPlane, namespace: str) -> None:
    where = ("--namespace", namespace)
    _kubectl(control_plane.kubeconfig, "create", "deployment", "web", "--image=nginx", "--replicas=3", *where)
    _kubectl(control_plane.kubeconfig, "wait", "--for=condition=Available", "deployment/web", "--timeout=600s", *where)
    pods = _read(control_plane.kubeconfig, "pods", *where)["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    assert all(pod["spec"]["nodeName"].startswith("node-") for pod in pods)


def test_a_job_completes(control_plane: ControlPlane, namespace: str) -> None:
    where = ("--namespace", namespace)
    _kubectl(control_plane.kubeconfig, "create", "job", "once", "--image=busybox", *where)
    _kubectl(control_plane.kubeconfig, "wait", "--for=condition=Complete", "job/once", "--timeout=600s", *where)


def test_pod_is_deleted_before_its_grace_period_ends(control_plane: ControlPlane, namespace: str) -> None:
    where = ("--namespace", namespace)
    _kubectl(control_plane.kubeconfig, "run", "one", "--image=nginx", *where)
    _kubectl(control_plane.kubeconfig, "wait", "--for=condition=Ready", "pod/one", "--timeout=600s", *where)
    started = time.monotonic()
    _kubectl(control_plane.kubeconfig, "delete", "pod", "one", "--wait", *where)
    assert time.monotonic() - started < GRACE_SECONDS


def test_pod_with_a_finalizer_stays_until_it_is_removed(control_plane: ControlPlane, namespace: str) -> None:
    where = ("--namespace", namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    _kubectl(control_plane.kubeconfig, "create", "-f", "-", *where, stdin=pod)
    _kubectl(control_plane.kubeconfig, "delete", "pod", "held", "--wait=false", *where)
    _kubectl(control_plane.kubeconfig, "wait", "--for=jsonpath={.metadata.deletionTimestamp}", "pod/held", *where)
    release = '{"metadata":{"finalizers":null}}'
    _kubectl(control_plane.kubeconfig, "patch", "pod", "held", "--type=merge", "-p", release, *where)
    _kubectl(control_plane.kubeconfig, "wait", "--for=delete", "pod/held", "--timeout=600s", *where)


def test_dependents_are_deleted_with_their_owner(control_plane: ControlPlane, namespace: str) -> None:
    where = ("--namespace", namespace)
    _kubectl(control_plane.kubeconfig, "create", "configmap", "owner", *where)
    uid = _read(control_plane.kubeconfig, "configmap", "owner", *where)["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    dependent = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "dependent", "ownerReferences": [reference]},
    }
    _kubectl(control_plane.kubeconfig, "create", "-f", "-", *where, stdin=dependent)
    _kubectl(control_plane.kubeconfig, "delete", "configmap", "owner", *where)
    _kubectl(control_plane.kubeconfig, "wait", "--for=delete", "configmap/dependent", "--timeout=600s", *where)


def test_namespace_is_deleted_with_its_objects(control_plane: ControlPlane) -> None:
    _kubectl(control_plane.kubeconfig, "create", "namespace", "short-lived")
    _kubectl(control_plane.kubeconfig, "create", "deployment", "web", "--image=nginx", "--namespace=short-lived")
    _kubectl(control_plane.kubeconfig, "delete", "namespace", "short-lived", "--wait", "--timeout=600s")
    assert "short-lived" not in _kubectl(control_plane.kubeconfig, "get", "namespaces")


def test_service_account_has_exactly_the_permissions_of_its_roles(control_plane: ControlPlane, namespace: str) -> None:
    where = ("--namespace", namespace)
    _kubectl(control_plane.kubeconfig, "create", "serviceaccount", "operator", *where)
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    with pytest.raises(AssertionError, match="Forbidden"):
        _kubectl(kubeconfig, "get", "pods")
    role = ("--verb=get,list", "--resource=pods")
    _kubectl(control_plane.kubeconfig, "create", "role", "reader", *role, *where)
    account = f"--serviceaccount={namespace}:operator"
    _kubectl(control_plane.kubeconfig, "create", "rolebinding", "reader", "--role=reader", account, *where)
    _wait_for(lambda: _is_allowed(kubeconfig, "get", "pods"), "the role")
    assert not _is_allowed(kubeconfig, "get", "secrets")


def _is_allowed(kubeconfig: Path, *arguments: str) -> bool:
    try:
        _kubectl(kubeconfig, *arguments)
    except AssertionError:
        return False
    return True


def test_blocking_owner_deletion_needs_permission_to_set_finalizers(
    control_plane: ControlPlane, namespace: str
) -> None:
    where = ("--namespace", namespace)
    _kubectl(control_plane.kubeconfig, "create", "serviceaccount", "operator", *where)
    _kubectl(control_plane.kubeconfig, "create", "deployment", "owner", "--image=nginx", *where)
    uid = _read(control_plane.kubeconfig, "deployment", "owner", *where)["metadata"]["uid"]
    role = ("--verb=create", "--resource=configmaps")
    _kubectl(control_plane.kubeconfig, "create", "role", "maker", *role, *where)
    account = f"--serviceaccount={namespace}:operator"
    _kubectl(control_plane.kubeconfig, "create", "rolebinding", "maker", "--role=maker", account, *where)
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    metadata = {"name": "owned", "ownerReferences": [reference]}
    dependent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    _wait_for(lambda: _is_allowed(kubeconfig, "auth", "can-i", "create", "configmaps"), "the role")
    with pytest.raises(AssertionError, match="cannot set blockOwnerDeletion"):
        _kubectl(kubeconfig, "create", "--validate=false", "-f", "-", stdin=dependent)


def test_an_unknown_service_account_is_named(control_plane: ControlPlane) -> None:
    with pytest.raises(ControlPlaneError, match="service account 'nobody' not found in namespace 'default'"):
        control_plane.service_account_kubeconfig("default", "nobody")


def test_two_control_planes_are_independent(control_plane: ControlPlane, state_directory: Path) -> None:
    with ControlPlane("other", state_directory=state_directory) as other:
        assert other.server != control_plane.server
        _kubectl(other.kubeconfig, "create", "namespace", "only-here")
        assert "only-here" not in _kubectl(control_plane.kubeconfig, "get", "namespaces")
        mixed = ("--server", other.server)
        with pytest.raises(AssertionError, match="certificate"):
            _kubectl(control_plane.kubeconfig, "get", "namespaces", *mixed)


def test_stop_leaves_no_processes_or_files(state_directory: Path) -> None:
    one = ControlPlane("gone", state_directory=state_directory)
    one.start()
    root = one.layout.root
    assert len(find_in_directory(root, COMPONENTS)) == len(COMPONENTS)
    assert one.stop()
    assert find_in_directory(root, COMPONENTS) == []
    assert _left_over(state_directory) == []
    assert not one.stop()


def test_failed_component_is_reported_with_its_log_and_cleaned_up(
    state_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "kube-scheduler"
    broken.write_text("#!/bin/sh\necho 'no such flag: --answer' >&2\nexit 1\n")
    broken.chmod(0o755)
    programs = find_binaries(print) | {"kube-scheduler": broken}
    monkeypatch.setattr(cluster, "find_binaries", lambda _report, **_kubernetes: programs)
    with pytest.raises(ComponentFailedError) as failure:
        ControlPlane("broken", state_directory=state_directory).start()
    assert failure.value.component == "kube-scheduler"
    assert "no such flag: --answer" in str(failure.value)
    assert _left_over(state_directory) == []


def test_error_names_a_program_that_is_not_executable(
    state_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = find_binaries(print) | {"etcd": tmp_path / "missing"}
    monkeypatch.setattr(cluster, "find_binaries", lambda _report, **_kubernetes: programs)
    with pytest.raises(ComponentFailedError, match="etcd could not be started"):
        ControlPlane("broken", state_directory=state_directory).start()
    assert _left_over(state_directory) == []


def test_port_taken_in_the_meantime_is_replaced(state_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as somebody:
        somebody.bind((HOST, 0))
        somebody.listen()
        taken = somebody.getsockname()[1]
        ports = iter([taken, startup.free_port()])
        monkeypatch.setattr(startup, "free_port", lambda: next(ports))
        with ControlPlane("port", state_directory=state_directory) as one:
            assert not one.server.endswith(f":{taken}")
            assert _read(one.kubeconfig, "nodes")["items"]


def test_start_cleans_up_after_a_crash(state_directory: Path) -> None:
    one = ControlPlane("crashed", state_directory=state_directory)
    one.start()
    _kubectl(one.kubeconfig, "create", "namespace", "before")
    state = one.state()
    assert state is not None
    os.kill(state.processes["kube-apiserver"].pid, signal.SIGKILL)
    _wait_for(lambda: not one.is_running(), "the API server to be gone")
    assert ControlPlane("crashed", state_directory=state_directory).start()
    assert "before" not in _kubectl(one.kubeconfig, "get", "namespaces")
    assert len(find_in_directory(one.layout.root, COMPONENTS)) == len(COMPONENTS)


def test_restarted_api_server_keeps_its_port_and_objects(state_directory: Path) -> None:
    with ControlPlane("restart", state_directory=state_directory) as one:
        _kubectl(one.kubeconfig, "create", "namespace", "before")
        server = one.server
        one.stop_component("kube-apiserver")
        assert not one.is_running()
        with pytest.raises(ControlPlaneError, match="does not answer"):
            one.service_account_kubeconfig("default", "default")
        one.start_component("kube-apiserver")
        assert (one.server, one.is_running()) == (server, True)
        assert "before" in _kubectl(one.kubeconfig, "get", "namespaces")
        _kubectl(one.kubeconfig, "create", "deployment", "web", "--image=nginx")
        _kubectl(one.kubeconfig, "wait", "--for=condition=Available", "deployment/web", "--timeout=600s")


def test_commands_start_list_and_stop_a_control_plane(state_directory: Path) -> None:
    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = _rolecall(*arguments, state_directory=state_directory)
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == code, answer.stderr
        return answer

    assert "control plane 'default' does not exist" in run("kubeconfig", code=1).stderr
    assert json.loads(run("status", "-o", "json", code=1).stdout)["state"] == "stopped"
    path = run("start").stdout.strip()
    assert run("kubeconfig").stdout == f"{path}\n"
    assert "is already running" in run("start").stderr
    status = json.loads(run("status", "-o", "json").stdout)
    assert (status["state"], [row["name"] for row in status["components"]]) == ("running", list(COMPONENTS))
    assert "Starting Kubernetes Scheduler" in run("logs", "kube-scheduler").stdout
    account = run("kubeconfig", "--service-account", "default/default").stdout.strip()
    assert "system:serviceaccount:default:default" in _kubectl(Path(account), "auth", "whoami")
    assert "expected NAMESPACE/NAME, found 'x'" in run("kubeconfig", "--service-account", "x", code=1).stderr
    assert "is stopped" in run("stop", "--all").stderr
    assert _left_over(state_directory) == []


def test_exec_returns_the_exit_code_and_cleans_up(state_directory: Path) -> None:
    shell = "kubectl get nodes && exit 7"
    command = _rolecall("exec", "--", "sh", "-c", shell, state_directory=state_directory)
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 7, answer.stderr
    assert "node-1" in answer.stdout
    assert _left_over(state_directory) == []


def test_exec_on_a_running_control_plane_leaves_it_running(state_directory: Path) -> None:
    with ControlPlane("kept", state_directory=state_directory) as one:
        command = _rolecall("exec", "--name", "kept", "--", "true", state_directory=state_directory)
        assert subprocess.run(command, check=False).returncode == 0
        assert one.is_running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_start_cleans_up(state_directory: Path, number: signal.Signals) -> None:
    # Tests in the background can have SIGINT ignored, which children inherit.
    command = ["env", "--default-signal", *_rolecall("start", state_directory=state_directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        log = state_directory / "default" / "logs" / "kube-apiserver.log"
        _wait_for(log.exists, "the API server to be started")
        process.send_signal(number)
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, output) == (130, "")
    assert _left_over(state_directory) == []


def test_terminated_exec_ends_its_command_and_cleans_up(state_directory: Path, tmp_path: Path) -> None:
    shell = f"echo started > {tmp_path / 'mark'}; exec sleep 600"
    command = _rolecall("exec", "--", "sh", "-c", shell, state_directory=state_directory)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        _wait_for((tmp_path / "mark").exists, "the command")
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert _left_over(state_directory) == []
