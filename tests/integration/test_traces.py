"""Traces of real runs, received over OpenTelemetry's own protocol: by the operator, and by the API server itself.

The API server here is told to send traces too. Its spans have the parent that a request named, so they prove what it
received.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane, components
from rolecall.workbench.project.demo_inputs import Applier, read_manifests
from tests.collector import Collector, SeenSpan, grpc_collector, http_collector
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.integration.test_podscaler import POD_SCALER_MANIFEST, wait_for_pods, wait_for_status
from tests.support.things import DEFINITIONS, MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, POD_SCALER, TIMEOUT_SECONDS, World, eventually, is_true

API_SERVER = "apiserver"
CLIENT = 3
"""The kind of a span that is a request to another service."""

TOKEN = "planted-collector-token"  # noqa: S105 - nothing that opens anything
PASSWORD = "planted-Pa55word"  # noqa: S105 - as above
SECRET = f"""
apiVersion: v1
kind: Secret
metadata: {{name: planted}}
stringData: {{password: {PASSWORD}}}
"""
FAILING = """
- name: Read a Secret
  kubernetes.core.k8s_info:
    {api_version: v1, kind: Secret, name: planted, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: found
- name: "Use {{ found.resources[0].data.password | b64decode }}"
  kubernetes.core.k8s_info:
    {api_version: v1, kind: ConfigMap, name: nothing, namespace: "{{ ansible_operator_meta.namespace }}"}
- name: Say what is in the environment
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: seen, namespace: "{{ ansible_operator_meta.namespace }}"}
      data:
        variables: "{{ lookup('pipe', 'env') }}"
- name: Name a trace of its own
  ansible.builtin.uri:
    url: "{{ lookup('env', 'ROLECALL_PROXY_URL') }}/api/v1/namespaces/default"
    headers:
      Authorization: "Bearer {{ (lookup('file', lookup('env', 'KUBECONFIG')) | from_json).users[0].user.token }}"
      traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
- name: Give up
  ansible.builtin.fail: {msg: "cannot use {{ found.resources[0].data.password | b64decode }}"}
"""
READING = """
- name: Read what is there
  kubernetes.core.k8s_info:
    {api_version: v1, kind: ConfigMap, name: nothing, namespace: "{{ ansible_operator_meta.namespace }}"}
"""


@pytest.fixture(scope="module")
def of_api_server() -> Iterator[Collector]:
    """Yield what receives the API server's own spans, which it sends over gRPC only."""
    with grpc_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced_control_plane(of_api_server: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a control plane whose API server sends a span for each request with a sampled parent."""
    file = tmp_path_factory.mktemp("tracing") / "tracing.yaml"
    address = of_api_server.url.removeprefix("http://")
    file.write_text(f"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {address}\n")
    options = components.options()
    with pytest.MonkeyPatch.context() as patch:
        tracing = options[components.API_SERVER] | {"tracing-config-file": str(file)}
        patch.setitem(options, components.API_SERVER, tracing)
        with ControlPlane(f"traces-{os.getpid()}", nodes=1) as running:
            applier = Applier(running.kubeconfig)
            applier.apply(read_manifests(PROJECT / "deploy/crds"))
            applier.apply(DEFINITIONS)
            yield running


@pytest.fixture
async def traced_world(traced_control_plane: ControlPlane) -> AsyncIterator[World]:
    """Yield the namespace of the tests; their objects have different names."""
    async with await Client.connect(str(traced_control_plane.kubeconfig)) as client:
        yield World(client, "default")


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Yield what receives the operator's spans."""
    with http_collector() as collector:
        yield collector


@pytest.fixture
def operator(traced_control_plane: ControlPlane, collector: Collector, tmp_path: Path) -> Iterator[Operator]:
    """Yield an operator that sends traces, with an administrator's permissions: the API server trusts only these."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{TOKEN}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    operator = Operator(tmp_path, traced_control_plane.kubeconfig, "default", environment=environment)
    yield operator
    operator.stop()


async def trace_of(collector: Collector, name: str, within: float = TIMEOUT_SECONDS) -> list[SeenSpan]:
    """Wait for the trace of the first reconcile of an object that had a run, and return its spans."""

    async def look() -> list[SeenSpan]:
        spans = collector.spans()
        firsts = [span for span in spans if not span.parent and span.attributes["k8s.object.name"] == name]
        whole = ([span for span in spans if span.trace == first.trace] for first in firsts)
        return next((each for each in whole if len(each) > 1), [])

    return await eventually(look, bool, within, f"a trace of {name}")


def below(spans: list[SeenSpan], parent: SeenSpan) -> list[SeenSpan]:
    """Return the spans directly below a span, and look whether they are within its time."""
    found = sorted((span for span in spans if span.parent == parent.ident), key=lambda span: span.start)
    outside = [span.name for span in found if not parent.start <= span.start <= span.end <= parent.end]
    assert not outside, (parent.name, outside)
    return found


async def test_a_reconcile_is_one_trace_down_to_the_spans_of_the_api_server(
    traced_world: World, operator: Operator, collector: Collector, of_api_server: Collector
) -> None:
    copy_project(operator.directory, "watches.yaml", "roles", "ansible.cfg")
    operator.start()
    await wait_until_ready(operator)
    await traced_world.create(POD_SCALER_MANIFEST)
    await wait_for_pods(traced_world, total=4, made=4)
    await wait_for_status(traced_world, pods=4, ready=4)
    spans = await trace_of(collector, "example-podscaler")

    (first,) = [span for span in spans if not span.parent]
    assert first.name == "reconcile PodScaler"
    assert first.attributes["k8s.object.api_version"] == POD_SCALER.api_version
    assert first.attributes["k8s.namespace.name"] == "default"
    assert first.attributes["rolecall.causes"]
    (run,) = below(spans, first)
    assert (run.name, run.is_error) == ("run podscaler", False)
    tasks = below(spans, run)
    created = next(span for span in tasks if span.name == "podscaler : Create the missing pods")
    assert created.attributes["ansible.task.result"] == "changed"
    requests = below(spans, created)
    creations = [span for span in requests if span.name == "POST pods"]
    assert len(creations) == 4
    assert {span.kind for span in creations} == {CLIENT}
    assert {span.attributes["url.path"] for span in creations} == {"/api/v1/namespaces/default/pods"}
    assert {span.attributes["http.response.status_code"] for span in creations} == {201}

    async def received() -> set[str]:
        return {span.parent for span in of_api_server.spans(API_SERVER) if span.trace == first.trace}

    everything = {span.ident for task in tasks for span in below(spans, task)}
    assert len(everything) > len(creations)
    await eventually(received, everything.issubset, TIMEOUT_SECONDS, "the API server's spans of all requests")
    assert {each["authorization"] for each in collector.headers} == {f"Bearer {TOKEN}"}


async def test_a_failure_is_an_error_without_its_secrets_and_what_a_role_began_goes_on(
    traced_world: World, operator: Operator, collector: Collector, of_api_server: Collector
) -> None:
    write_project(operator.directory, FAILING)
    await traced_world.create(SECRET)
    operator.start()
    await wait_until_ready(operator)
    await traced_world.create(MANIFEST)
    spans = await trace_of(collector, "one")
    (first,) = [span for span in spans if not span.parent]
    (run,) = below(spans, first)
    assert (first.is_error, run.is_error) == (True, True)
    assert run.attributes["error.type"] == "failed"
    tasks = below(spans, run)
    assert [span.is_error for span in tasks] == [False] * 4 + [True]
    assert tasks[1].name.startswith("thing : Use ")
    assert [span for span in spans if PASSWORD in repr(span)] == []

    (asked,) = [span for span in below(spans, run) if span.links] or [
        span for task in tasks for span in below(spans, task) if span.links
    ]
    assert asked.links == (("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),)

    async def continued() -> list[SeenSpan]:
        return [span for span in of_api_server.spans(API_SERVER) if span.parent == "b7ad6b7169203331"]

    await eventually(continued, bool, TIMEOUT_SECONDS, "the API server's span below the role's own")
    seen = await traced_world.get(CONFIG_MAP, "seen")
    variables = seen["data"]["variables"]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=" in variables
    assert TOKEN not in variables


async def test_idle_reconciles_are_omitted_on_request(
    traced_world: World, operator: Operator, collector: Collector
) -> None:
    write_project(operator.directory, READING)
    operator.arguments = ("--trace-unchanged=false",)
    operator.start()
    await wait_until_ready(operator)
    await traced_world.create(MANIFEST.replace("one", "quiet"))
    await traced_world.wait_for(THING, "quiet", lambda obj: is_true(obj, "Successful"))
    write_project(operator.directory, "- {name: Change something, ansible.builtin.command: 'true'}\n")
    await traced_world.create(MANIFEST.replace("one", "loud"))
    spans = await trace_of(collector, "loud")
    assert [span.name for span in spans if not span.parent] == ["reconcile Thing"]
    assert operator.stop() == 0
    assert {span.attributes["k8s.object.name"] for span in collector.spans() if not span.parent} == {"loud"}
