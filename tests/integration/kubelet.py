"""A node whose pods can be entered: kwok serves exec, attach, logs and port-forward for it, on this machine.

The kubelet of the control plane's simulated nodes executes no command. This one does: a second kwok that manages
nothing and serves the pods of tests. A command that is executed "in" such a pod runs here, so only tests use it.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.cluster import free_port
from rolecall.workbench.controlplane.components import STAGES
from tests.support.world import TIMEOUT_SECONDS, World, eventually, is_true

NODE = GVK("", "v1", "Node")
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Kubelet:
    """The node, the file that its pods log to and the port on this machine that their ports lead to."""

    node: str
    port: int
    log: Path
    target_port: int

    async def register(self, client: Client) -> None:
        """Make the node and say where its kubelet listens, which does so when this returns."""
        # Unschedulable, because other tests create pods too, also after this kubelet has ended.
        spec = {"unschedulable": True}
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}, "spec": spec})
        world = World(client, "")
        await world.wait_for(NODE, self.node, lambda node: is_true(node, "Ready"))
        status = {
            "addresses": [{"type": "InternalIP", "address": HOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }
        await client.patch(NODE, ObjectKey("", self.node), {"status": status}, "status")
        await eventually(self._listens, bool, TIMEOUT_SECONDS, "the kubelet listens")

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def run_pod(self, world: World, name: str) -> None:
        """Run a pod there and wait until it is said to run."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": world.namespace},
            "spec": {"nodeName": self.node, "containers": [{"name": "main", "image": "none"}]},
        }
        await world.wait_until_pods_are_allowed()
        await world.client.create(pod)
        gvk = GVK("", "v1", "Pod")
        await world.wait_for(gvk, name, lambda found: found["status"].get("phase") == "Running")


@contextmanager
def running_kubelet(control_plane: ControlPlane, directory: Path, target_port: int) -> Iterator[Kubelet]:
    """Run the kubelet of a node that is still to be registered."""
    port = free_port()
    kubelet = Kubelet(f"kubelet-{port}", port, directory / "container.log", target_port)
    kubelet.log.write_text("")
    certificates = control_plane.layout.certificates
    (directory / "kubelet.yaml").write_text("\n---\n".join(map(json.dumps, _answers(kubelet))))
    command = [
        str(control_plane.program_directory / "kwok"),
        f"--kubeconfig={control_plane.kubeconfig}",
        f"--config={STAGES}",  # it does not start without any, though it plays none
        f"--config={directory / 'kubelet.yaml'}",
        f"--server-address={HOST}:{port}",
        f"--tls-cert-file={certificates / 'kubelet.crt'}",
        f"--tls-private-key-file={certificates / 'kubelet.key'}",
        "--manage-nodes-with-label-selector=nobody=manages-these",
    ]
    with (directory / "kubelet.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        yield kubelet
    finally:
        process.terminate()
        process.wait(60)


def _answers(kubelet: Kubelet) -> list[RawObject]:
    """Describe what every pod answers."""
    log = str(kubelet.log)
    forward = {"target": {"address": HOST, "port": kubelet.target_port}}
    answers = {
        "ClusterLogs": {"logs": [{"logsFile": log, "follow": True}]},
        "ClusterAttach": {"attaches": [{"logsFile": log}]},
        "ClusterExec": {"execs": [{"local": {}}]},
        "ClusterPortForward": {"forwards": [forward]},
    }
    return [
        {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec}
        for kind, spec in answers.items()
    ]
