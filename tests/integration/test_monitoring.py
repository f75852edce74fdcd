"""The component monitoring: Prometheus accepts its alerts, and they fire for an operator that fails, and for no other.

promtool evaluates the alerts for the metrics of a real operator: those of a healthy one, and those after a failure, as
if it continued.
"""

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from rolecall.kube.references import RawObject
from rolecall.runner.election.elector import LEASE
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.binaries import find_binaries
from tests.integration.conftest import wait_until_ready
from tests.integration.metrics import read
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.integration.shared import Role, Shared
from tests.support.prometheus import evaluate, find_promtool, program, series
from tests.support.world import TIMEOUT_SECONDS, World, eventually

ALERTS = yaml.safe_load((PROJECT / "deploy/components/monitoring/alerts.yaml").read_text())["spec"]
MINUTES = 40
TARGET = {"job": "rolecall-metrics", "namespace": "shop", "pod": "one"}
SHARED = Shared(
    {
        "failing": Role("- ansible.builtin.fail: {msg: as asked}\n"),
        "endless": Role("- ansible.builtin.command: sleep 600\n", "timeout: 1s"),
        "slow": Role("- ansible.builtin.command: sleep 600\n"),
        "hungry": Role("- ansible.builtin.command: python3 -c 'x = bytearray(600 << 20)'\n"),
    },
    (
        "--max-concurrent-reconciles=1",
        "--backoff-max=5s",
        "--run-memory-limit=400Mi",
        "--graceful-shutdown-timeout=5s",
        "--metrics-bind-address=127.0.0.1:0",
    ),
)
FAILING, ENDLESS, SLOW, HUNGRY = (str(SHARED.gvk(name)) for name in SHARED.roles)
Scrape = Mapping[str, float]


@pytest.fixture(scope="module")
def promtool() -> Path:
    return find_promtool()


@dataclass(frozen=True, slots=True)
class Story:
    """What an operator has exposed: before its objects, with objects that fail or wait, and without its fork server.

    ``follower`` is of a replica while another one holds the Lease.
    """

    healthy: Scrape
    failing: Scrape
    replaced: Scrape
    follower: Scrape


@pytest.fixture
async def story(defined: ControlPlane, world: World, tmp_path: Path) -> AsyncIterator[Story]:
    """Let an operator fail, and yield its metrics."""
    for name in ("leading", "waiting"):
        (tmp_path / name).mkdir()
    leading = electing(SHARED.operator(tmp_path / "leading", defined.kubeconfig), world, "leading")
    waiting = electing(SHARED.operator(tmp_path / "waiting", defined.kubeconfig), world, "waiting")
    try:
        async with aiohttp.ClientSession() as session:
            leading.start()
            await wait_until_ready(leading)
            healthy = await read(session, leading)
            for number, name in enumerate([*SHARED.roles, "slow"]):
                await world.create(yaml.safe_dump(thing(name, number)))
            failing = await scrape(session, leading, has_failed, "every kind fails, is stopped, or waits")
            fork_server(leading).kill()
            replaced = await scrape(session, leading, has_new_server, "the fork server is replaced")
            await world.create(yaml.safe_dump(HELD))
            waiting.start()
            follower = await scrape(session, waiting, is_waiting, "the other replica waits, with its requests")
        yield Story(healthy, failing, replaced, follower)
    finally:
        leading.stop()
        waiting.stop()


HELD = {
    "apiVersion": LEASE.api_version,
    "kind": LEASE.kind,
    "metadata": {"name": "waiting"},
    "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": "2100-01-01T00:00:00.000000Z"},
}


def electing(operator: Operator, world: World, lease: str) -> Operator:
    """Return the operator in the namespace of the test, as a candidate for a Lease."""
    operator.namespace = world.namespace
    operator.arguments += ("--leader-elect", f"--leader-election-id={lease}")
    operator.arguments += (f"--leader-election-namespace={world.namespace}",)
    return operator


def thing(role: str, number: int) -> RawObject:
    gvk = SHARED.gvk(role)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": f"thing-{number}"}, "spec": {}}


async def scrape(session: aiohttp.ClientSession, operator: Operator, holds: Any, what: str) -> Scrape:
    """Return the metrics once they have a state."""

    async def look() -> Scrape:
        return await read(session, operator) if operator.messages("Serving metrics") else {}

    found: Scrape = await eventually(look, lambda seen: seen and holds(seen), TIMEOUT_SECONDS, what)
    return found


def has_failed(found: Scrape) -> bool:
    killed = "ansible_operator_killed_runs_total"
    return (
        # A run is counted as killed before its object is counted as failing.
        all(found[f'ansible_operator_failing_objects{{GVK="{gvk}"}}'] == 1 for gvk in (FAILING, ENDLESS, HUNGRY))
        and found[f'{killed}{{GVK="{ENDLESS}",limit="time"}}'] > 0
        and found[f'{killed}{{GVK="{HUNGRY}",limit="memory"}}'] > 0
        and found[f'ansible_operator_oldest_waiting_request_seconds{{GVK="{SLOW}"}}'] > 1
    )


def is_waiting(found: Scrape) -> bool:
    is_follower = found.get('leader_election_master_status{name="waiting"}') == 0
    return is_follower and found[f'ansible_operator_oldest_waiting_request_seconds{{GVK="{SLOW}"}}'] > 0


def has_new_server(found: Scrape) -> bool:
    return found['ansible_operator_fork_server_replacements_total{reason="exited"}'] > 0


def fork_server(operator: Operator) -> psutil.Process:
    """Return the fork server of an operator; the server's own children have its command line until they rename it."""
    servers = []
    for child in operator.main_process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "rolecall.runner.warm.server" in child.cmdline():
                servers.append(child)
    (server,) = servers
    return server


def assert_firing(
    promtool: Path, directory: Path, before: Scrape, after: Scrape, expected: list[dict[str, str]]
) -> None:
    """Let promtool compare the alerts that fire within ``MINUTES``, by their labels, with the expected ones.

    The metrics change after five minutes, and then stay as they are. Only the age of a waiting request grows.
    """
    inputs = []
    for name, end in after.items():
        if not name.startswith(("leader_election_", "ansible_operator_")):
            continue
        growth = 60 if name.startswith("ansible_operator_oldest_waiting") and end > 0 else 0
        start = "_x5" if name not in before else f"{before[name]}+0x4"
        inputs.append(series(name, TARGET, f"{start} {end}+{growth}x{MINUTES}"))
    samples = [
        {"labels": "{" + ",".join(f'{key}="{each[key]}"' for key in each) + "}", "value": 1} for each in expected
    ]
    firing = f'max_over_time(ALERTS{{alertstate="firing"}}[{MINUTES}m])'
    test = {
        "expr": f"group by (alertname, GVK, limit, reason) ({firing})",
        "eval_time": f"{MINUTES}m",
        "exp_samples": samples,
    }
    evaluate(promtool, directory, ALERTS, {"input_series": inputs, "promql_expr_test": [test]})


def test_promtool_accepts_the_rules(promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(ALERTS))
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", tmp_path / "rules.yaml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "5 rules found" in done.stdout) == (0, True), done.stdout + done.stderr


async def test_alerts_fire_for_failures_of_a_real_operator_and_only_then(
    promtool: Path, story: Story, tmp_path: Path
) -> None:
    assert_firing(promtool, tmp_path, story.healthy, story.healthy, [])
    killed = [{"GVK": ENDLESS, "limit": "time"}, {"GVK": HUNGRY, "limit": "memory"}]
    failing = [
        *({"alertname": "OperatorObjectsFail", "GVK": gvk} for gvk in (FAILING, ENDLESS, HUNGRY)),
        *({"alertname": "OperatorKillsRuns", **labels} for labels in killed),
        {"alertname": "OperatorRequestsWait", "GVK": SLOW},
    ]
    assert_firing(promtool, tmp_path, story.healthy, story.failing, failing)
    replaced = {"alertname": "OperatorReplacesForkServer", "reason": "exited"}
    counter = 'ansible_operator_fork_server_replacements_total{reason="exited"}'
    assert_firing(promtool, tmp_path, story.healthy, {**story.healthy, counter: story.replaced[counter]}, [replaced])
    assert_firing(promtool, tmp_path, story.follower, story.follower, [{"alertname": "OperatorHasNoLeader"}])
    assert_firing(promtool, tmp_path, {}, {}, [{"alertname": "OperatorHasNoLeader"}])


def test_api_server_accepts_all_components_together(tmp_path: Path) -> None:
    """With the real schemas of ServiceMonitor and PrometheusRule."""
    definitions = program(os.environ.get("PROMETHEUS_OPERATOR_CRDS"), "the directory of PROMETHEUS_OPERATOR_CRDS")
    kubectl = find_binaries(print)["kubectl"]
    copy_project(tmp_path, "Makefile", "deploy")  # make deploy writes .deploy, and so do other tests at the same time
    with ControlPlane(f"monitoring-{os.getpid()}") as cluster:
        environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig),
            "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
        }

        def do(*words: str | Path) -> str:
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        for kind in ("servicemonitors", "prometheusrules"):
            do(kubectl, "apply", "--server-side", "-f", definitions / f"monitoring.coreos.com_{kind}.yaml")
        components = "COMPONENTS=dashboard monitoring podcount records secure-metrics shards"
        printed = do("make", "deploy", components)
        applied = {line.split()[0] for line in printed.splitlines() if line.endswith(" serverside-applied")}
        assert {
            "deployment.apps/rolecall",
            "servicemonitor.monitoring.coreos.com/rolecall",
            "prometheusrule.monitoring.coreos.com/rolecall",
            "configmap/rolecall-grafana",
        } <= applied
        do("make", "undeploy", components)
        do("make", "uninstall")
