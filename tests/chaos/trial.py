"""One trial: inject a fault, wait until all objects have recovered, and collect violations."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import psutil

from rolecall.kube.errors import KubeError
from tests.chaos.fault import Fault
from tests.chaos.leak_checks import leaks_at_rest
from tests.chaos.outcome import Outcome, Violation
from tests.chaos.requests import RETRY_SECONDS
from tests.chaos.scene import Scene

TIMEOUT_SECONDS = 90.0
_REST_SECONDS = 90.0
"""The garbage collector takes up to a minute to reconnect to an API server after an outage."""


async def run_trial(scene: Scene, fault: Fault, chance: random.Random) -> Outcome:
    """Change objects, inject a fault, and wait until every object has converged."""
    duplicated, overlaps = set(scene.workload.hikawas.duplicated()), len(scene.workload.ledger.overlaps())
    for replica in scene.replicas:
        replica.may_end = fault.may_end_operator
    changes = [asyncio.create_task(change.make()) for change in scene.workload.changes(chance)]
    violations: list[Violation] = []
    started = time.monotonic()
    try:
        await fault.act(scene, chance)
    except TimeoutError as error:
        violations.append(Violation("unconverged", str(error)))
    except (AssertionError, KubeError, psutil.Error) as error:
        violations.append(Violation("other", f"injection failed: {error!r}"))
    if not fault.is_counted_from_start:
        started = time.monotonic()
    changes.append(asyncio.create_task(scene.workload.touch()))
    unconverged = await _settled(scene, changes)
    seconds = None if unconverged else time.monotonic() - started
    violations += [Violation("unconverged", text) for text in unconverged]
    violations += [
        Violation("leaked", text) for text in await _nothing_within(_REST_SECONDS, lambda: leaks_at_rest(scene))
    ]
    violations += [
        Violation("duplicated", name) for name in scene.workload.hikawas.duplicated() if name not in duplicated
    ]
    violations += [Violation("overlapping", text) for text in scene.workload.ledger.overlaps()[overlaps:]]
    for replica in scene.replicas:
        violations += [Violation("other", f"the operator exited by itself with {code}") for code in replica.ended]
        replica.ended.clear()
    return Outcome(fault.name, seconds, violations)


async def settled(scene: Scene) -> list[str]:
    """Wait until every object has converged; return the remaining problems after a timeout."""
    return await _nothing_within(TIMEOUT_SECONDS, scene.workload.problems)


async def _settled(scene: Scene, changes: Sequence[asyncio.Task[None]]) -> list[str]:
    done, pending = await asyncio.wait(changes, timeout=TIMEOUT_SECONDS)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    failed = [task.exception() for task in done]
    found = [f"a change failed: {error}" for error in failed if error is not None]
    found += [f"{len(pending)} changes timed out"] if pending else []
    return found + await settled(scene)


async def _nothing_within(seconds: float, look: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """Poll until nothing is found; after a timeout, return the last findings."""
    deadline = time.monotonic() + seconds
    while found := await look():
        if time.monotonic() > deadline:
            return found
        await asyncio.sleep(RETRY_SECONDS)
    return []
