"""Metrics of the operator and of roles, and probes."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from rolecall.kube.quantities import parse_duration
from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.conftest import wait_until_ready
from tests.integration.metrics import port_of, read
from tests.integration.operators import Operator
from tests.integration.shared import Role, Shared, Things
from tests.support.things import write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually, is_true

pytestmark = pytest.mark.core

ROLE = """
- name: Count
  rolecall.util.osdk_metric: {name: sanity_counter, description: counts, counter: {}}
- name: Gauge
  rolecall.util.osdk_metric: {name: sanity_gauge, description: measures, gauge: {}}
- name: Increment a counter
  rolecall.util.osdk_metric: {name: counter_inc_test, description: counts, counter: {increment: true}}
- name: Add to a counter
  rolecall.util.osdk_metric: {name: counter_add_test, description: counts, counter: {add: 2}}
- name: Set a gauge
  rolecall.util.osdk_metric: {name: gauge_set_test, description: measures, gauge: {set: 5}}
- name: Add to a gauge
  rolecall.util.osdk_metric: {name: gauge_add_test, description: measures, gauge: {add: 7}}
- name: Subtract from a gauge
  rolecall.util.osdk_metric: {name: gauge_sub_test, description: measures, gauge: {subtract: 7}}
- name: Set a gauge to the time
  rolecall.util.osdk_metric: {name: gauge_time_test, description: measures, gauge: {set_to_current_time: true}}
- name: Observe in a summary
  rolecall.util.osdk_metric: {name: summary_test, description: measures, summary: {observe: 2}}
- name: Observe in a histogram
  rolecall.util.osdk_metric: {name: histogram_test, description: measures, histogram: {observe: 2}}
- name: Be refused
  rolecall.util.osdk_metric: {name: counter_inc_test, description: counts, gauge: {set: 1}}
  register: refused
  ignore_errors: true
- name: Tell
  ansible.builtin.set_stats: {data: {refusal: "{{ refused.msg }}", code: "{{ refused.status_code }}"}}
"""
"""Values after one run."""
EXPECTED = {
    "sanity_counter": 0,
    "sanity_gauge": 0,
    "counter_inc_test": 1,
    "counter_add_test": 2,
    "gauge_set_test": 5,
    "gauge_add_test": 7,
    "gauge_sub_test": -7,
    "summary_test_sum": 2,
    "histogram_test_sum": 2,
}
ADDRESSES = ("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0")
CREATED = 'resource_created_at_seconds{group="test.rolecall.dev",kind="Thing",name="one",namespace="%s",version="v1"}'


SHARED = Shared(
    {
        "counting": Role(ROLE, "status: {refusal: $.stats.refusal, code: $.stats.code}"),
        "plain": Role("- ansible.builtin.debug:\n" * 5),
    },
    arguments=ADDRESSES,
)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_metrics_include_reconciles_and_those_of_the_role(things: Things, session: aiohttp.ClientSession) -> None:
    thing, operator = things["counting"], things.operator
    created = CREATED.replace("Thing", thing.gvk.kind) % things.world.namespace
    await thing.create()
    status = (await thing.succeeds())["status"]
    assert status["refusal"].endswith("cannot change metric type of counter_inc_test, which is a counter")
    assert status["code"] == 400

    gvk = f'GVK="test.rolecall.dev/v1, Kind={thing.gvk.kind}"'
    controller = f"{thing.gvk.kind.lower()}-v1-controller"
    done = f'controller_runtime_reconcile_total{{controller="{controller}",result="requeue_after"}}'
    count = f"ansible_operator_reconciles_count{{{gvk}}}"
    found = await eventually(
        lambda: read(session, operator), lambda all_: all_[done] == all_[count] == 1, TIMEOUT_SECONDS, "counted"
    )
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    assert found["gauge_time_test"] > 1.7e9
    assert found[f'ansible_operator_reconcile_result{{{gvk},result="succeeded"}}'] == 1
    assert found[f'ansible_operator_reconcile_result{{{gvk},result="failed"}}'] == 0
    seconds = found[f"ansible_operator_reconciles_sum{{{gvk}}}"]
    run_seconds = parse_duration(thing.messages("Reconcile succeeded")[0]["duration"])
    assert seconds > run_seconds - 0.06 > 0, "it is the whole of the reconcile; the log rounds to tenths of a second"
    assert found[f'controller_runtime_reconcile_time_seconds_sum{{controller="{controller}"}}'] == seconds
    assert found[f'workqueue_adds_total{{controller="{controller}",name="{controller}"}}'] >= 1
    assert found[f'workqueue_depth{{controller="{controller}",name="{controller}",priority="high"}}'] == 0
    assert any(
        re.match(r'rest_client_requests_total{code="200",host="127.0.0.1:\d+",method="PUT"}', it) for it in found
    )
    assert found[created] > 1.7e9
    assert found["process_resident_memory_bytes"] > 1e6

    await thing.delete()
    await eventually(lambda: read(session, operator), lambda all_: created not in all_, TIMEOUT_SECONDS, "forgotten")


async def test_probes_respond_during_runs(things: Things, session: aiohttp.ClientSession) -> None:
    base = f"http://127.0.0.1:{port_of(things.operator, 'Serving health probes')}"
    many = [things.named("plain", f"thing-{number}") for number in range(12)]
    for thing in many:
        await thing.create()
    meanwhile = 0

    async def look() -> list[RawObject]:
        nonlocal meanwhile
        going_on = sum(thing.runs() - thing.ended() for thing in many)
        for path in ("/healthz", "/readyz", "/healthz/ping", "/readyz/readyz"):
            async with session.get(base + path) as response:
                assert (response.status, await response.text()) == (200, "ok")
        meanwhile += going_on > 0
        return await things.world.objects(many[0].gvk)

    await eventually(
        look, lambda found: all(is_true(obj, "Successful") for obj in found), TIMEOUT_SECONDS, "all are done"
    )
    assert meanwhile > 0, "no run went on: this test tests nothing"
    async with session.get(base + "/readyz?verbose") as response:
        assert (await response.text()).splitlines()[-1] == "readyz check passed"


async def test_a_taken_port_ends_the_operator_with_one_clear_error(thing_operator: Operator, tmp_path: Path) -> None:
    write_project(tmp_path, "- ansible.builtin.debug:\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        thing_operator.arguments += ("--metrics-bind-address", address)
        thing_operator.start()
        assert await asyncio.to_thread(thing_operator.wait) == 1
    error = f"cannot listen on '{address}' (--metrics-bind-address): Address already in use"
    assert thing_operator.tail().splitlines()[-1] == f"rolecall run: {error}"


RIGHTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-NAME}
rules: RULES
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE-NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: NAMESPACE}]
"""
OPERATOR_RULES = """[
  {apiGroups: [test.rolecall.dev], resources: [things], verbs: [get, list, watch]},
  {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]},
  {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}]"""


def account(plane: ControlPlane, world: World, name: str, rules: str = "[]") -> Path:
    """Make a service account with these permissions and return its kubeconfig."""
    text = RIGHTS.replace("NAMESPACE", world.namespace).replace("NAME", name).replace("RULES", rules)
    Applier(plane.kubeconfig).apply(list(yaml.safe_load_all(text)))
    return plane.service_account_kubeconfig(world.namespace, name)


def token_of(kubeconfig: Path) -> str:
    """Return the token of a kubeconfig."""
    return str(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])


async def test_secured_metrics_need_permission(
    defined: ControlPlane, world: World, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The operator's own account needs no more than to request reviews."""
    reader_rules = "[{nonResourceURLs: [/metrics], verbs: [get]}]"
    allowed = await asyncio.to_thread(account, defined, world, "reader", reader_rules)
    stranger = await asyncio.to_thread(account, defined, world, "stranger")
    operators_own = await asyncio.to_thread(account, defined, world, "operator", OPERATOR_RULES)
    write_project(tmp_path, "- ansible.builtin.debug:\n")
    secure = ("--metrics-bind-address", "127.0.0.1:0", "--metrics-secure", "--metrics-require-rbac")
    operator = Operator(tmp_path, operators_own, world.namespace, secure)
    operator.start()
    try:
        await wait_until_ready(operator)
        url = f"https://127.0.0.1:{port_of(operator, 'Serving metrics')}/metrics"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        async def ask(token: str | None) -> tuple[int, str]:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            async with session.get(url, headers=headers, ssl=context) as response:
                return response.status, await response.text()

        status, text = await ask(token_of(allowed))
        assert status == 200
        assert "ansible_operator_build_info" in text
        assert await ask(token_of(stranger)) == (403, "Forbidden\n")
        assert await ask("no token of this cluster") == (401, "Unauthorized\n")
        assert await ask(None) == (401, "Unauthorized\n")
        log = operator.log_file.read_text()
        assert "Background task failed" not in log
        assert token_of(allowed) not in log
    finally:
        assert operator.stop() == 0
