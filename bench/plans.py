"""How long the plan of a whole fleet takes, and a replay: objects of the four kinds that an operator has reconciled.

This is an upgrade as somebody tries it out: the objects are there, mostly nothing changes, and ``rolecall plan --all``
starts a shadow, imports everything and runs each role. The records of the operator are then replayed in one shadow.
Both are commands as a person types them, so their start counts.
"""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

from bench.operator_process import running
from bench.report import Row
from bench.stage import PROJECT, Stage, progress, until

from rolecall.kube.references import GVK, RawObject

OBJECTS, QUICK_OBJECTS = 200, 12
PLAN_GOAL_SECONDS, REPLAY_GOAL_SECONDS = 120.0, 1.0
REPLAYS, QUICK_REPLAYS = 60, 6
_PROGRAM = (sys.executable, "-m", "rolecall")
_APPS = "apps/v1"
_DONE_SECONDS, _PER_OBJECT_SECONDS = 120.0, 5.0
_PARTS = ("watches.yaml", "roles", "ansible.cfg")
PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"
_PLANNED = (0, 2)
"""Exit codes of ``rolecall plan``: nothing would change, or something would."""


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Plan all objects, and replay records of them."""
    count, replays = (QUICK_OBJECTS, QUICK_REPLAYS) if is_quick else (OBJECTS, REPLAYS)
    folder = stage.subfolder("plans")
    for part in _PARTS:
        copy = shutil.copytree if (PROJECT / part).is_dir() else shutil.copy
        copy(PROJECT / part, folder / part)
    namespace = await stage.namespace("bench-plans")
    await _reconciled(stage, folder, namespace, count)
    code, seconds = await _command(stage, folder, "plan", "--all", "-n", namespace)
    if code not in _PLANNED:
        raise RuntimeError(f"rolecall plan ended with {code}; its output is in {folder}")
    progress(f"{count} objects planned in {seconds:.1f} s, exit code {code}")
    goal = None if is_quick else PLAN_GOAL_SECONDS
    rows = [Row(f"{count} objects of the four kinds: a plan, start included", seconds, "s", goal)]
    return rows + await _replays(stage, folder, replays)


async def _replays(stage: Stage, folder: Path, count: int) -> list[Row]:
    found = sorted((folder / "records").glob("*.jsonl"))
    chosen = found[:: max(1, len(found) // count)][:count]
    one = await _command(stage, folder, "replay", "--summary", str(chosen[0]))
    code, seconds = await _command(stage, folder, "replay", "--summary", *map(str, chosen))
    progress(f"{len(chosen)} records replayed in {seconds:.1f} s, one in {one[1]:.1f} s, exit code {code}")
    each = (seconds - one[1]) / (len(chosen) - 1)
    return [
        Row(f"{len(chosen)} records: a replay, start included", seconds / len(chosen), "s", REPLAY_GOAL_SECONDS),
        Row(f"{len(chosen)} records: one replay more", each, "s", remark=f"exit code {code}"),
    ]


async def _reconciled(stage: Stage, folder: Path, namespace: str, count: int) -> None:
    """Create objects and let an operator reconcile them, with records."""
    objects = [make(number) for number in range(count // 4) for make in (_foo, _hikawa, _pod_scaler, _replica_set)]
    for obj in objects:
        await stage.client.create({**obj, "metadata": {**obj["metadata"], "namespace": namespace}})
    command = (*_PROGRAM, "run", "--zap-encoder", "json", "--record-dir", str(folder / "records"))
    environment = {"KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace}
    async with running(command, folder, environment) as operator:

        async def is_done() -> bool:
            kinds = {GVK.of_object(obj) for obj in objects if obj["apiVersion"] != _APPS}
            return all([await _are_done(stage, gvk, namespace) for gvk in kinds])

        await operator.ready()
        await until(is_done, _DONE_SECONDS + _PER_OBJECT_SECONDS * count, "all objects are reconciled")


async def _are_done(stage: Stage, gvk: GVK, namespace: str) -> bool:
    return all([_is_done(obj) async for page, _ in stage.client.list_pages(gvk, namespace) for obj in page])


def _is_done(obj: RawObject) -> bool:
    status = obj.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return conditions.get("Successful") == "True" and status.get("kiyoshied", True)


async def _command(stage: Stage, folder: Path, *arguments: str) -> tuple[int, float]:
    """Run a command of rolecall; return its exit code and how long it took."""
    started = time.monotonic()
    with (folder / f"{arguments[0]}.txt").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            *arguments,
            cwd=folder,
            env={**os.environ, "KUBECONFIG": str(stage.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        return await process.wait(), time.monotonic() - started


def _foo(number: int) -> RawObject:
    return _object(
        "samplecontroller.k8s.io/v1alpha1", "Foo", number, {"deploymentName": f"made-{number}", "replicas": 1}
    )


def _hikawa(number: int) -> RawObject:
    made = _object("zundokokiyoshi.kaitoy.github.com/v1beta1", "Hikawa", number, {"intervalMillis": 100})
    made["metadata"]["annotations"] = {"zundokokiyoshi.kaitoy.github.com/seed": "encore"}
    return made


def _pod_scaler(number: int) -> RawObject:
    spec = {"count": 2, "selector": {"app": f"scaled-{number}"}}
    made = _object("scaling.example.com/v1", "PodScaler", number, spec)
    made["metadata"]["annotations"] = {PERIOD: "1h"}  # every 15 s, as watches.yaml has it, would delay the songs
    return made


def _replica_set(number: int) -> RawObject:
    labels = {"app": f"counted-{number}"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}}
    return _object(_APPS, "ReplicaSet", number, {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod})


def _object(api_version: str, kind: str, number: int, spec: RawObject) -> RawObject:
    metadata = {"name": f"{kind.lower()}-{number}"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
