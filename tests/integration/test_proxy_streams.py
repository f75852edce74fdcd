"""exec, attach, port-forward and logs through the proxy, by WebSocket and SPDY, with the real kubectl and modules."""

import asyncio
import hashlib
import re
import socketserver
import sys
import threading
from collections.abc import Iterator

import pytest

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.kubelet import Kubelet, running_kubelet
from tests.integration.proxied import Run
from tests.support.world import TIMEOUT_SECONDS

PROTOCOLS = {"websocket": "true", "spdy": "false"}
MEGABYTES = 24


class _SaysItTwice(socketserver.StreamRequestHandler):
    """The targets of the pods' ports."""

    def handle(self) -> None:
        """Answer one line."""
        self.wfile.write(self.rfile.readline() * 2)


@pytest.fixture(scope="module")
def shared_kubelet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """Yield the node of all tests here."""
    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), _SaysItTwice) as server,
        running_kubelet(control_plane, tmp_path_factory.mktemp("kubelet"), server.server_address[1]) as kubelet,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(_register(kubelet, control_plane))
        yield kubelet
        server.shutdown()


async def _register(kubelet: Kubelet, control_plane: ControlPlane) -> None:
    async with await Client.connect(str(control_plane.kubeconfig)) as client:
        await kubelet.register(client)


@pytest.fixture
async def kubelet(shared_kubelet: Kubelet, run: Run) -> Kubelet:
    """Return the node with a pod of the test's own, web."""
    await shared_kubelet.run_pod(run.world, "web")
    return shared_kubelet


def write_log(kubelet: Kubelet, line: str) -> None:
    """Write a line to the log of the pod's container, in the form of a container runtime."""
    with kubelet.log.open("a") as log:
        log.write(f"2026-01-01T00:00:00.000000000Z stdout F {line}\n")


async def read_until(process: asyncio.subprocess.Process, wanted: bytes) -> bytes:
    """Read a command's output until something stands in it."""
    assert process.stdout is not None
    output = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while wanted not in output:
            part = await process.stdout.read(1000)
            assert part, f"the command ended: {output!r}"
            output += part
    return output


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_commands_are_executed_and_what_they_say_comes_back(run: Run, protocol: str) -> None:
    variables = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": PROTOCOLS[protocol]}
    command = run.kubectl_command("exec", "-i", "web", "--", "sh", "-c", "head -n 1; echo error >&2; exit 7")
    code, output = await run.command(*command, text="hello\n", **variables)
    assert {"hello", "error"} <= set(output.splitlines())
    assert code != 0, "kwok's kubelet says the exit code in words"
    assert "exit status 7" in output


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_large_stream_arrives_whole(run: Run, protocol: str) -> None:
    variables = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": PROTOCOLS[protocol]}
    command = f"yes 0123456789abcde | head -c {MEGABYTES}M"
    async with run.process(*run.kubectl_command("exec", "web", "--", "sh", "-c", command), **variables) as process:
        output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    expected = b"0123456789abcde\n" * (MEGABYTES * (1 << 16))
    assert hashlib.sha256(output).digest() == hashlib.sha256(expected).digest()


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_command_ends_with_the_run(run: Run, protocol: str) -> None:
    variables = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": PROTOCOLS[protocol]}
    command = run.kubectl_command("exec", "web", "--", "sh", "-c", "echo begun; sleep 600")
    async with run.process(*command, **variables) as process:
        await read_until(process, b"begun")
        await run.proxy.revoke(run.itself)
        await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS)


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_port_is_forwarded_until_the_run_ends(run: Run, protocol: str) -> None:
    variables = {"KUBECTL_PORT_FORWARD_WEBSOCKETS": PROTOCOLS[protocol]}
    command = run.kubectl_command("port-forward", "--address", "127.0.0.1", "web", ":80")
    async with run.process(*command, **variables) as process:
        output = await read_until(process, b"-> 80")
        found = re.search(rb"127\.0\.0\.1:(\d+) -> 80", output)
        assert found is not None, output
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
            writer.write(b"ping\n")
            assert await asyncio.wait_for(reader.readexactly(10), TIMEOUT_SECONDS) == b"ping\nping\n"
            writer.close()
        await run.proxy.revoke(run.itself)
        await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS)


@pytest.mark.parametrize("command", [("logs", "-f", "web"), ("attach", "web")], ids=lambda command: command[0])
async def test_logs_are_followed_until_the_run_ends(run: Run, kubelet: Kubelet, command: tuple[str, ...]) -> None:
    async with run.process(*run.kubectl_command(*command)) as process:
        line = f"for {run.world.namespace} by {command[0]}"
        reading = asyncio.create_task(read_until(process, line.encode()))
        while not reading.done():
            write_log(kubelet, line)  # who attaches sees only what is said from then on
            await asyncio.wait({reading}, timeout=0.2)
        await reading
        await run.proxy.revoke(run.itself)
        await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS)


PYTHON_CLIENT = """
import sys
from kubernetes import client, config
from kubernetes.stream import portforward, stream

config.load_kube_config()
api, namespace = client.CoreV1Api(), sys.argv[1]
words = ["sh", "-c", "echo executed"]
print(stream(api.connect_get_namespaced_pod_exec, "web", namespace, command=words, stdout=True, stderr=True), end="")
forwarded = portforward(api.connect_get_namespaced_pod_portforward, "web", namespace, ports="80").socket(80)
forwarded.sendall(b"hello\\n")
print(forwarded.recv(100).decode(), end="")
"""


@pytest.mark.usefixtures("kubelet")
async def test_python_client_with_the_kubeconfig_of_a_run_executes_and_forwards(run: Run) -> None:
    """It opens a tunnel without credentials, and sends its token inside."""
    code, output = await run.command(sys.executable, "-c", PYTHON_CLIENT, run.world.namespace)
    assert (code, output) == (0, "executed\nhello\nhello\n")
