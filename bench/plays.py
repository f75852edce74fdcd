"""What one real play takes: the role podscaler on an object that needs nothing, by the operator and by Ansible alone.

The operator starts each play cold here, in a new process (``--warm=false``). Ansible alone is ``ansible-playbook`` with
the same role, the same inventory and the same variables, which it gets from the workspace that the operator left; it
shows how much of the operator's time is Ansible's own. These rows are context and have no goal.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from bench.operator_process import Operator, logged_at, running
from bench.readiness import RUN
from bench.report import Row, Samples
from bench.stage import PROJECT, REPEATS, Stage, progress, until

from rolecall.kube.references import GVK, ObjectKey, RawObject

POD_SCALER = GVK("scaling.example.com", "v1", "PodScaler")
PODS = 4
_SETTLE_SECONDS, _RUNS_SECONDS = 60.0, 120.0
_PLAYBOOK = """\
- hosts: localhost
  gather_facts: false
  roles: [podscaler]
"""


async def measure(stage: Stage) -> list[Row]:
    """Reconcile one PodScaler again and again, first with the operator and then without."""
    directory = stage.subdirectory("plays")
    for part in ("watches.yaml", "roles"):
        (directory / part).symlink_to(PROJECT / part)
    key = ObjectKey(await stage.namespace("bench-plays"), "unchanged")
    await stage.client.create(_pod_scaler(key))
    environment = {"KUBECONFIG": str(stage.account), "WATCH_NAMESPACE": key.namespace, "ANSIBLE_GATHERING": "explicit"}
    command = (*RUN, "--warm=false", "--work-dir", str(directory / "work"))
    async with running(command, directory, environment) as operator:
        cold = Samples(await _reconciles(stage, operator, key))
    progress(f"Reconciles with cold plays: {cold.median:.2f} s")
    alone = Samples(await _ansible_alone(stage, directory, key))
    progress(f"ansible-playbook alone: {alone.median:.2f} s")
    remark = f"median of {REPEATS}, {{}}"
    return [
        Row("an unchanged PodScaler: one reconcile, cold", cold.median, "s", remark=remark.format(cold.spread)),
        Row("the same role: `ansible-playbook` alone", alone.median, "s", remark=remark.format(alone.spread)),
        Row("… so a cold reconcile takes", cold.median / alone.median, "times as long"),
    ]


async def _reconciles(stage: Stage, operator: Operator, key: ObjectKey) -> list[float]:
    """Return the durations of the first five reconciles that started after all pods were ready."""

    async def is_ready() -> bool:
        status = (await stage.client.get(POD_SCALER, key)).get("status") or {}
        return bool(status.get("ready") == PODS)

    await until(is_ready, _SETTLE_SECONDS, "the PodScaler has its pods")
    since = time.time()

    async def are_enough() -> bool:
        return len(_durations(operator, since)) >= REPEATS

    await until(are_enough, _RUNS_SECONDS, f"{REPEATS} reconciles have succeeded")
    return _durations(operator, since)[:REPEATS]


def _durations(operator: Operator, since: float) -> list[float]:
    started = {line["job"]: logged_at(line) for line in operator.messages("Reconcile started")}
    succeeded = {line["job"]: logged_at(line) for line in operator.messages("Reconcile succeeded")}
    return [succeeded[job] - began for job, began in started.items() if began > since and job in succeeded]


async def _ansible_alone(stage: Stage, directory: Path, key: ObjectKey) -> list[float]:
    gvk = POD_SCALER
    workspace = directory / "work" / gvk.group / gvk.version / gvk.kind / key.namespace / key.name
    playbook = directory / "alone.yml"
    playbook.write_text(_PLAYBOOK)
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", str(workspace / "inventory"), "-e", f"@{workspace}/env/extravars", str(playbook)]
    environment = {
        **os.environ,
        "KUBECONFIG": str(stage.account),
        "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
        "ANSIBLE_GATHERING": "explicit",
    }
    times = []
    for _ in range(REPEATS):
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"ansible-playbook ended with {process.returncode}:\n{printed.decode()[-2000:]}")
        times.append(time.monotonic() - started)
    return times


def _pod_scaler(key: ObjectKey) -> RawObject:
    return {
        "apiVersion": POD_SCALER.api_version,
        "kind": POD_SCALER.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "annotations": {"ansible.sdk.operatorframework.io/reconcile-period": "1s"},
        },
        "spec": {"count": PODS, "selector": {"app": "bench"}},
    }
