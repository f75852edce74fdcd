"""How long plans, replays, and crash tests take: the commands as a person types them, so their start counts.

The plan and the replays are an upgrade as somebody tries it out: an operator has reconciled objects of the four kinds,
mostly nothing changes, and ``rolecall plan --all`` starts a sandbox, imports everything, and runs each role. The
records of the operator are then replayed in one sandbox.

The crash test is that of a role which creates ConfigMaps, one task for each.
"""

import asyncio
import json
import os
import time
from pathlib import Path

import yaml
from bench import widgets
from bench.fleet import PROGRAM, Fleet, fleet
from bench.report import Row
from bench.stage import Stage, progress

OBJECTS, QUICK_OBJECTS = 200, 12
PLAN_GOAL_SECONDS, REPLAY_GOAL_SECONDS = 120.0, 1.0
REPLAYS, QUICK_REPLAYS = 60, 6
WRITES, QUICK_WRITES = 100, 10
CRASH_TEST_GOAL_SECONDS = 900.0
_WRITES_OF_OPERATOR = 2
"""The status of the running and of the finished reconcile."""
_PLANNED = (0, 2)
"""Exit codes of ``rolecall plan``: nothing would change, or something would."""


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Plan all objects, and replay records of them."""
    count, replays = (QUICK_OBJECTS, QUICK_REPLAYS) if is_quick else (OBJECTS, REPLAYS)
    objects = await fleet(stage, "plans", count)
    await objects.create()
    async with objects.operator("--record-dir", str(objects.directory / "records")):
        await objects.done()
    code, seconds = await _command(stage, objects.directory, "plan", "--all", "-n", objects.namespaces[0])
    if code not in _PLANNED:
        raise RuntimeError(f"rolecall plan ended with {code}; its output is in {objects.directory}")
    progress(f"{count} objects planned in {seconds:.1f} s, exit code {code}")
    goal = None if is_quick else PLAN_GOAL_SECONDS
    rows = [Row(f"{count} objects of the four kinds: a plan, start included", seconds, "s", goal)]
    return rows + await _replays(objects, replays)


async def _replays(objects: Fleet, count: int) -> list[Row]:
    found = sorted((objects.directory / "records").glob("*.jsonl"))
    chosen = found[:: max(1, len(found) // count)][:count]
    stage, directory = objects.stage, objects.directory
    one = await _command(stage, directory, "replay", "--summary", str(chosen[0]))
    code, seconds = await _command(stage, directory, "replay", "--summary", *map(str, chosen))
    progress(f"{len(chosen)} records replayed in {seconds:.1f} s, one in {one[1]:.1f} s, exit code {code}")
    each = (seconds - one[1]) / (len(chosen) - 1)
    return [
        Row(f"{len(chosen)} records: a replay, start included", seconds / len(chosen), "s", REPLAY_GOAL_SECONDS),
        Row(f"{len(chosen)} records: one replay more", each, "s", remark=f"exit code {code}"),
    ]


async def measure_crash_test(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Kill an operator after each write of a role that creates many objects."""
    count = QUICK_WRITES if is_quick else WRITES
    directory, namespace = stage.subdirectory("crash-test"), await stage.namespace("bench-crash-test")
    widgets.write_project(directory)
    tasks = [_creation(number) for number in range(count - _WRITES_OF_OPERATOR)]
    (directory / "roles" / "widget" / "tasks" / "main.yml").write_text(yaml.safe_dump(tasks))
    widget = {"apiVersion": widgets.WIDGET.api_version, "kind": "Widget", "metadata": {"name": "one"}, "spec": {}}
    (directory / "widget.yaml").write_text(yaml.safe_dump(widget))
    progress(f"{count} writes: killing an operator after each of them")
    arguments = ("-f", "widget.yaml", "-n", namespace, "-o", "json")
    code, seconds = await _command(stage, directory, "crashtest", *arguments)
    if code:
        raise RuntimeError(f"rolecall crashtest ended with {code}; its output is in {directory}")
    trials = json.loads((directory / "crashtest.txt").read_text())["trials"]
    if len(trials) != count:
        raise RuntimeError(f"expected {count} trials, found {len(trials)}")
    what = f"{count} writes: a crash test, start included"
    return [Row(what, seconds, "s", None if is_quick else CRASH_TEST_GOAL_SECONDS, f"{seconds / count:.2f} s for each")]


def _creation(number: int) -> dict[str, object]:
    metadata = {"name": f"c-{number:03d}", "namespace": "{{ ansible_operator_meta.namespace }}"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(number)}}
    return {"name": f"Create ConfigMap {number}", "kubernetes.core.k8s": {"definition": config_map}}


async def _command(stage: Stage, directory: Path, *arguments: str) -> tuple[int, float]:
    """Run a command of rolecall in a directory; return its exit code and how long it took.

    Its standard output is in a file with its name, and standard error in another one.
    """
    started, file = time.monotonic(), directory / arguments[0]
    with file.with_suffix(".txt").open("wb") as output, file.with_suffix(".log").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            cwd=directory,
            env={**os.environ, "KUBECONFIG": str(stage.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        return await process.wait(), time.monotonic() - started
