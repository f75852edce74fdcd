"""Simulated pods as real operators need them: volumes, states, exec, attach, logs and ports."""

import asyncio
import hashlib
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.cluster import free_port
from rolecall.workbench.controlplane.components import KUBELET, RESPONSES_LABEL
from rolecall.workbench.controlplane.state import is_alive
from tests.integration.shared import Role, Shared, Things
from tests.support.world import DEPLOYMENT, EVENT, POD, TIMEOUT_SECONDS, World, eventually, is_true

NODE = GVK("", "v1", "Node")
CLAIM = GVK("", "v1", "PersistentVolumeClaim")
VOLUME = GVK("", "v1", "PersistentVolume")
STATEFUL_SET = GVK("apps", "v1", "StatefulSet")
JOB = GVK("batch", "v1", "Job")

RESPONSES = """
- pod: web-.*
  command: never used, because the pod is called web
  exitCode: 9
- command: app-manage showmigrations
  stdout: "[X] 0001_initial\\n"
- command: ^psql
  container: main
  stderr: "connection to the database refused\\n"
  exitCode: 2
- command: print a lot
  stdout: BIG
- log: |
    starting
    ready
"""
BIG = "0123456789" * 50_000

ASKS_ITS_POD = """
- name: Read the migrations
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: web
    command: bash -c "app-manage showmigrations | grep X"
  register: migrations
- name: Connect to the database
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: web
    command: psql -c "select 1"
  register: database
  failed_when: database.rc != 2
- name: Execute a command without a response
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: web
    command: rm -rf {{ unwanted }}
  register: unspecified
- name: Read a lot
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: web
    command: print a lot
  register: big
- name: Read the log
  kubernetes.core.k8s_log:
    namespace: "{{ ansible_operator_meta.namespace }}"
    name: web
  register: log
- name: Report everything
  rolecall.util.k8s_status:
    api_version: test.rolecall.dev/v1
    kind: KIND
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      migrations: "{{ migrations.stdout }}"
      database: "{{ database.stderr }}"
      unspecified: "{{ unspecified.rc }}:{{ unspecified.stdout }}"
      big: "{{ big.stdout | hash('sha256') }}"
      log: "{{ log.log }}"
"""
EXECUTES = """
- name: Execute a command
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: web
    command: "true"
"""
SHARED = Shared({"asking": Role(ASKS_ITS_POD), "executing": Role(EXECUTES)})


async def create_pod(world: World, name: str = "web", **spec: object) -> None:
    """Create a pod with a container main."""
    metadata = {"name": name, "namespace": world.namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": CONTAINERS, **spec}}
    await world.wait_until_pods_are_allowed()
    await world.client.create(pod)


async def run_pod(world: World, name: str = "web", **spec: object) -> None:
    """Run a pod with a container main."""
    await create_pod(world, name, **spec)
    await world.wait_for(POD, name, lambda found: found.get("status", {}).get("phase") == "Running")


CONTAINERS = [{"name": "main", "image": "none"}]


async def define_responses(world: World, responses: str) -> None:
    """Create a ConfigMap with responses of the namespace's pods."""
    metadata = {"name": "responses", "namespace": world.namespace, "labels": {RESPONSES_LABEL: "true"}}
    data = {"responses.yaml": responses}
    await world.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


async def kubectl(plane: ControlPlane, world: World, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run kubectl as administrator in the test's namespace; return the exit code and output."""
    program = str(plane.program_directory / "kubectl")
    command = (program, f"--kubeconfig={plane.kubeconfig}", f"--namespace={world.namespace}", *arguments)
    environment = {"HOME": str(plane.layout.root), **variables}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    return process.returncode or 0, output.decode()


async def test_role_receives_specified_responses_of_its_pod(world: World, things: Things, tmp_path: Path) -> None:
    """A command without a response succeeds without output, and no command is executed on this machine."""
    unwanted = tmp_path / "must-survive"
    unwanted.write_text("")
    await run_pod(world)
    await define_responses(world, RESPONSES.replace("BIG", BIG))
    thing = things["asking"]
    await thing.create({"unwanted": str(unwanted)})
    status = (await thing.succeeds())["status"]
    assert status["migrations"] == "[X] 0001_initial\n"
    assert status["database"] == "connection to the database refused\n"
    assert status["unspecified"] == "0:"
    assert status["big"] == hashlib.sha256(BIG.encode()).hexdigest()
    assert status["log"] == "starting\nready\n"
    assert unwanted.exists()


async def test_role_receives_error_in_responses(world: World, things: Things) -> None:
    await run_pod(world)
    await define_responses(world, "- command: x\n  exit: 1\n")
    thing = things["executing"]
    await thing.create()
    await thing.fails("ConfigMap 'responses', key 'responses.yaml', item 1: unknown key 'exit'")


@pytest.fixture
async def dead_node(world: World) -> AsyncIterator[str]:
    """Yield a node whose kubelet does not listen, of a release before WebSockets reached kubelets."""
    name = f"dead-{world.namespace}"
    status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": free_port()}}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": True}}
    await world.client.create(node | {"status": status})
    yield name
    await world.client.delete(NODE, ObjectKey("", name))


async def test_role_receives_reason_for_unreachable_kubelet(world: World, things: Things, dead_node: str) -> None:
    await run_pod(world, nodeName=dead_node)
    thing = things["executing"]
    await thing.create()
    await thing.fails("error dialing backend: dial tcp 127.0.0.1")


async def test_kubectl_reads_responses(control_plane: ControlPlane, world: World) -> None:
    await run_pod(world)
    await define_responses(world, RESPONSES.replace("BIG", BIG))
    code, output = await kubectl(control_plane, world, "exec", "web", "--", "psql", "-c", "select 1")
    assert (code, output.splitlines()[0]) == (2, "connection to the database refused")
    assert await kubectl(control_plane, world, "exec", "web", "--", "print", "a", "lot") == (0, BIG)
    assert await kubectl(control_plane, world, "logs", "web") == (0, "starting\nready\n")
    assert await kubectl(control_plane, world, "logs", "web", "--tail=1") == (0, "ready\n")
    assert await kubectl(control_plane, world, "logs", "web", "--limit-bytes=5") == (0, "start")
    code, output = await kubectl(control_plane, world, "logs", "web", "--previous")
    assert code == 1
    assert "previous terminated container" in output
    code, output = await kubectl(control_plane, world, "attach", "web")
    assert code == 0
    assert "starting\nready\n" in output


async def test_kubectl_reports_unsupported_requests(control_plane: ControlPlane, world: World) -> None:
    await run_pod(world)
    spdy = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"}
    code, output = await kubectl(control_plane, world, "exec", "web", "--", "true", **spdy)
    assert (code, "over WebSockets only" in output) == (1, True)
    assert "before 1.31, and the API server before 1.36" in output
    spdy = {"KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
    code, output = await kubectl(control_plane, world, "port-forward", "web", ":80", **spdy)
    assert (code, "over WebSockets only" in output) == (1, True)


def test_kubelet_rejects_clients_other_than_the_api_server(control_plane: ControlPlane) -> None:
    state = control_plane.state()
    assert state is not None
    certificates = control_plane.layout.certificates
    url = f"https://127.0.0.1:{state.kubelet_port}/exec/default/web/main?command=true"
    context = ssl.create_default_context(cafile=certificates / "authority.crt")
    with pytest.raises((urllib.error.URLError, OSError)) as refused:
        urllib.request.urlopen(url, context=context)
    assert not isinstance(refused.value, urllib.error.HTTPError)
    context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url, context=context)


async def test_exec_works_after_the_kubelet_restarts(control_plane: ControlPlane, world: World) -> None:
    await run_pod(world)
    control_plane.stop_component(KUBELET)
    code, output = await kubectl(control_plane, world, "exec", "web", "--", "true")
    assert (code, "connection refused" in output) == (1, True)
    control_plane.start_component(KUBELET)
    state = control_plane.state()
    assert state is not None
    assert is_alive(state.processes[KUBELET])
    assert await kubectl(control_plane, world, "exec", "web", "--", "true") == (0, "")


CRASHES = "[{pod: web-.*, container: main, state: Terminated, exitCode: 137}, {log: out of luck}]"
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: none}, {name: helper, image: none}]}
"""


async def run_job(world: World, name: str, **spec: object) -> None:
    """Create a Job with a container main."""
    template = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
    metadata = {"name": name, "namespace": world.namespace}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}
    await world.client.create(job)


async def wait_for_reason(world: World, pod: str, reason: str, statuses: str = "containerStatuses") -> RawObject:
    """Wait until the first container waits for this reason; return the pod's status."""

    def holds(found: RawObject) -> bool:
        first = found.get("status", {}).get(statuses, [{}])[0]
        return bool(first.get("state", {}).get("waiting", {}).get("reason") == reason)

    status: RawObject = (await world.wait_for(POD, pod, holds))["status"]
    return status


def conditions(status: RawObject) -> dict[str, tuple[str, str, str]]:
    """Return the status, reason, and message of a pod's conditions by type."""
    return {
        each["type"]: (each["status"], each.get("reason", ""), each.get("message", "")) for each in status["conditions"]
    }


async def test_completed_init_container_has_the_status_of_a_kubelet(world: World) -> None:
    """It isn't started, because it doesn't run, but ready, because it succeeded. A sidecar runs."""
    inits = [{"name": "setup", "image": "none"}, {"name": "proxy", "image": "none", "restartPolicy": "Always"}]
    await run_pod(world, initContainers=inits)
    pod = await world.get(POD, "web")
    setup, proxy = pod["status"]["initContainerStatuses"]
    assert (setup["started"], setup["ready"], setup["restartCount"]) == (False, True, 0)
    assert setup["state"]["terminated"].items() >= {"exitCode": 0, "reason": "Completed"}.items()
    assert setup["state"]["terminated"]["containerID"] == setup["containerID"]
    assert (proxy["started"], proxy["ready"], list(proxy["state"])) == (True, True, ["running"])
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"]


def back_off(status: RawObject) -> str:
    """Return the wait of a container before its next restart, by the number of its restarts until now."""
    restarts: int = status["restartCount"]
    return ("10s", "20s", "40s", "1m20s", "2m40s", "5m0s")[min(restarts, 6) - 1]


async def test_container_crashes_again_after_each_restart(control_plane: ControlPlane, world: World) -> None:
    await define_responses(world, CRASHES)
    await world.create(WEB)
    (pod,) = await eventually(lambda: world.pods(app="web"), bool, TIMEOUT_SECONDS, "the Deployment has a pod")
    name = pod["metadata"]["name"]
    status = await wait_for_reason(world, name, "CrashLoopBackOff")
    main, helper = status["containerStatuses"]
    assert (main["started"], main["ready"], main["restartCount"] >= 1) == (False, False, True)
    assert main["lastState"]["terminated"].items() >= {"exitCode": 137, "reason": "Error"}.items()
    expected = f"back-off {back_off(main)} restarting failed container=main pod={name}_"
    assert main["state"]["waiting"]["message"].startswith(expected)
    assert (helper["started"], helper["ready"], list(helper["state"])) == (True, True, ["running"])
    assert status["phase"] == "Running"
    unready = ("False", "ContainersNotReady", "containers with unready status: [main]")
    assert conditions(status).items() >= {"Initialized": ("True", "", ""), "Ready": unready}.items()
    assert not is_true(await world.get(DEPLOYMENT, "web"), "Available")
    for arguments in (("logs", name, "-c", "main"), ("logs", name, "-c", "main", "--previous")):
        assert await kubectl(control_plane, world, *arguments) == (0, "out of luck")
    code, output = await kubectl(control_plane, world, "exec", name, "-c", "main", "--", "true")
    assert (code, 'container not found ("main")' in output) == (1, True)
    assert await kubectl(control_plane, world, "exec", name, "-c", "helper", "--", "true") == (0, "")
    restarted = await world.wait_for(
        POD, name, lambda found: found["status"]["containerStatuses"][0]["restartCount"] > main["restartCount"]
    )
    again = restarted["status"]["containerStatuses"][0]
    assert again["state"]["waiting"]["message"].startswith(
        f"back-off {back_off(again)} restarting failed container=main"
    )
    assert again["lastState"]["terminated"]["exitCode"] == 137


async def test_pod_waits_for_image_that_cannot_be_pulled(control_plane: ControlPlane, world: World) -> None:
    await define_responses(world, "[{container: main, state: ImagePullBackOff}]")
    await world.create(WEB)
    (pod,) = await eventually(lambda: world.pods(app="web"), bool, TIMEOUT_SECONDS, "the Deployment has a pod")
    name = pod["metadata"]["name"]
    status = await wait_for_reason(world, name, "ImagePullBackOff")
    main, helper = status["containerStatuses"]
    assert (main["started"], main["ready"], main["restartCount"]) == (False, False, 0)
    assert main["state"]["waiting"]["message"].startswith('Back-off pulling image "none": ErrImagePull: ')
    assert (status["phase"], helper["ready"], is_true(await world.get(DEPLOYMENT, "web"), "Available")) == (
        "Pending",
        True,
        False,
    )
    code, output = await kubectl(control_plane, world, "logs", name, "-c", "main")
    assert (code, "is waiting to start" in output) == (1, True)


async def test_init_container_that_crashes_blocks_the_pod(world: World) -> None:
    await define_responses(world, "[{container: setup, state: Terminated, exitCode: 3}]")
    inits = [{"name": "setup", "image": "none"}, {"name": "later", "image": "none"}]
    await create_pod(world, initContainers=inits)
    status = await wait_for_reason(world, "web", "CrashLoopBackOff", "initContainerStatuses")
    setup, later = status["initContainerStatuses"]
    assert setup["lastState"]["terminated"]["exitCode"] == 3
    initializing = {"waiting": {"reason": "PodInitializing"}}
    assert (later["state"], status["containerStatuses"][0]["state"]) == (initializing, initializing)
    incomplete = ("False", "ContainersNotInitialized", "containers with incomplete status: [setup later]")
    assert (status["phase"], conditions(status)["Initialized"]) == ("Pending", incomplete)


async def test_job_runs_as_long_as_its_pod_and_fails_with_it(world: World) -> None:
    states = "[{pod: long-.*, state: Running}, {pod: bad-.*, state: Terminated, exitCode: 4}]"
    await define_responses(world, states)
    await run_job(world, "long")
    await world.wait_for(JOB, "long", lambda found: found.get("status", {}).get("ready") == 1)
    await run_job(world, "bad", backoffLimit=0)
    await run_job(world, "good")
    await world.wait_for(JOB, "good", lambda found: is_true(found, "Complete"))
    failed = await world.wait_for(JOB, "bad", lambda found: is_true(found, "Failed"))
    assert "BackoffLimitExceeded" in [each.get("reason") for each in failed["status"]["conditions"]]
    (pod,) = await world.pods(**{"job-name": "bad"})
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["status"]["phase"], terminated["exitCode"], terminated["reason"]) == ("Failed", 4, "Error")
    assert conditions(pod["status"])["Ready"] == ("False", "PodFailed", "")
    long = await world.get(JOB, "long")
    assert (long["status"].get("active"), long["status"].get("conditions")) == (1, None)


async def test_invalid_response_keeps_pods_from_being_bound(world: World) -> None:
    await define_responses(world, "[{state: Exploded}]")
    await create_pod(world)

    async def messages() -> list[str]:
        return [str(event.get("note") or event.get("message")) for event in await world.objects(EVENT)]

    expected = "ConfigMap 'responses', key 'responses.yaml', item 1: state: expected Running, Terminated"
    await eventually(
        messages, lambda found: any(expected in one for one in found), TIMEOUT_SECONDS, "an Event names it"
    )


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what was read, when the client has sent everything."""
    writer.write(await reader.read())
    writer.close()


async def _exchange(port: int, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(content)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), TIMEOUT_SECONDS)
    except TimeoutError:
        raise
    except OSError:  # kubectl may close a connection of a port that doesn't exist at any moment
        return b""
    finally:
        writer.close()


async def test_port_of_pod_leads_to_port_of_this_machine(control_plane: ControlPlane, world: World) -> None:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    target = server.sockets[0].getsockname()[1]
    await run_pod(world)
    await define_responses(world, f"[{{pod: web, port: 80, targetPort: {target}}}]")
    program = str(control_plane.program_directory / "kubectl")
    options = (f"--kubeconfig={control_plane.kubeconfig}", f"--namespace={world.namespace}")
    command = (program, *options, "port-forward", "web", "--address=127.0.0.1", ":80", ":81")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        ports = []
        for _ in range(2):
            line = (await asyncio.wait_for(process.stdout.readline(), TIMEOUT_SECONDS)).decode()
            ports.append(int(line.split()[2].rpartition(":")[2]))
        assert await _exchange(ports[0], b"hello") == b"hello"
        contents = [bytes([number]) * 1_000_000 for number in range(3)]
        assert await asyncio.gather(*(_exchange(ports[0], content) for content in contents)) == contents
        assert await _exchange(ports[1], b"hello") == b""
        output = (await asyncio.wait_for(process.stdout.read(), TIMEOUT_SECONDS)).decode()
        assert "error forwarding port 81: no response of simulated pods has this port" in output
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        server.close()


def _claim(world: World, name: str, **spec: object) -> RawObject:
    metadata = {"name": name, "namespace": world.namespace}
    resources = {"requests": {"storage": "1Gi"}}
    full = {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
    return {"apiVersion": "v1", "kind": CLAIM.kind, "metadata": metadata, "spec": full}


def _is_bound(claim: RawObject) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Bound")


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])
async def test_claim_is_bound_to_volume_that_is_deleted_with_it(world: World, mode: str) -> None:
    await world.client.create(_claim(world, "data", accessModes=[mode]))
    claim = await world.wait_for(CLAIM, "data", _is_bound)
    assert claim["spec"]["storageClassName"] == "standard"
    assert (claim["status"]["accessModes"], claim["status"]["capacity"]) == ([mode], {"storage": "1Gi"})
    key = ObjectKey("", claim["spec"]["volumeName"])
    assert (await world.client.get(VOLUME, key))["status"]["phase"] == "Bound"
    await world.delete(CLAIM, "data")
    everywhere = World(world.client, "")
    await everywhere.wait_until_gone(VOLUME, key.name, TIMEOUT_SECONDS)


async def test_claim_of_foreign_provisioner_waits_for_its_first_consumer(world: World) -> None:
    """A class of the user's own gets volumes too: no real provisioner runs here."""
    name = f"late-{world.namespace}"
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await world.client.create(storage_class)
    await world.client.create(_claim(world, "late", storageClassName=name))
    await world.client.create(_claim(world, "immediate"))
    await world.wait_for(CLAIM, "immediate", _is_bound)
    assert not _is_bound(await world.get(CLAIM, "late"))
    await run_pod(world, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "late"}}])
    await world.wait_for(CLAIM, "late", _is_bound)


async def test_claim_without_class_stays_unbound(world: World) -> None:
    await world.client.create(_claim(world, "static", storageClassName=""))
    await world.client.create(_claim(world, "dynamic"))
    await world.wait_for(CLAIM, "dynamic", _is_bound)
    assert not _is_bound(await world.get(CLAIM, "static"))


async def test_stateful_set_with_claim_templates_becomes_ready(world: World) -> None:
    labels = {"app": "database"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
    claim: dict[str, Any] = _claim(world, "data")
    spec = {
        "serviceName": "database",
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim["spec"]}],
    }
    metadata = {"name": "database", "namespace": world.namespace}
    await world.client.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec})
    await world.wait_for(STATEFUL_SET, "database", lambda found: found.get("status", {}).get("readyReplicas") == 2)
    assert [_is_bound(claim) for claim in await world.objects(CLAIM)] == [True, True]
