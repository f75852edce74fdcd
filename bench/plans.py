"""How long the plan of a whole fleet takes, and a replay: objects of the four kinds that an operator has reconciled.

This is an upgrade as somebody tries it out: the objects are there, mostly nothing changes, and ``rolecall plan --all``
starts a sandbox, imports everything and runs each role. The records of the operator are then replayed in one sandbox.
Both are commands as a person types them, so their start counts.
"""

import asyncio
import os
import time

from bench.fleet import PROGRAM, Fleet, fleet
from bench.report import Row
from bench.stage import Stage, progress

OBJECTS, QUICK_OBJECTS = 200, 12
PLAN_GOAL_SECONDS, REPLAY_GOAL_SECONDS = 120.0, 1.0
REPLAYS, QUICK_REPLAYS = 60, 6
_PLANNED = (0, 2)
"""Exit codes of ``rolecall plan``: nothing would change, or something would."""


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Plan all objects, and replay records of them."""
    count, replays = (QUICK_OBJECTS, QUICK_REPLAYS) if is_quick else (OBJECTS, REPLAYS)
    objects = await fleet(stage, "plans", count)
    await objects.create()
    async with objects.operator("--record-dir", str(objects.directory / "records")):
        await objects.done()
    code, seconds = await _command(objects, "plan", "--all", "-n", objects.namespaces[0])
    if code not in _PLANNED:
        raise RuntimeError(f"rolecall plan ended with {code}; its output is in {objects.directory}")
    progress(f"{count} objects planned in {seconds:.1f} s, exit code {code}")
    goal = None if is_quick else PLAN_GOAL_SECONDS
    rows = [Row(f"{count} objects of the four kinds: a plan, start included", seconds, "s", goal)]
    return rows + await _replays(objects, replays)


async def _replays(objects: Fleet, count: int) -> list[Row]:
    found = sorted((objects.directory / "records").glob("*.jsonl"))
    chosen = found[:: max(1, len(found) // count)][:count]
    one = await _command(objects, "replay", "--summary", str(chosen[0]))
    code, seconds = await _command(objects, "replay", "--summary", *map(str, chosen))
    progress(f"{len(chosen)} records replayed in {seconds:.1f} s, one in {one[1]:.1f} s, exit code {code}")
    each = (seconds - one[1]) / (len(chosen) - 1)
    return [
        Row(f"{len(chosen)} records: a replay, start included", seconds / len(chosen), "s", REPLAY_GOAL_SECONDS),
        Row(f"{len(chosen)} records: one replay more", each, "s", remark=f"exit code {code}"),
    ]


async def _command(objects: Fleet, *arguments: str) -> tuple[int, float]:
    """Run a command of rolecall; return its exit code and how long it took."""
    started = time.monotonic()
    with (objects.directory / f"{arguments[0]}.txt").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            cwd=objects.directory,
            env={**os.environ, "KUBECONFIG": str(objects.stage.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        return await process.wait(), time.monotonic() - started
