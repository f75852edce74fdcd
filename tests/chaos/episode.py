"""One disturbance from its beginning until everything is well again, and what was violated meanwhile."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import psutil

from rolecall.kube.errors import KubeError
from tests.chaos.accepted import AGAIN_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.chaos.outcome import Outcome, Violation
from tests.chaos.remains import left_at_rest
from tests.chaos.scene import Scene

PATIENCE_SECONDS = 90.0
_REST_SECONDS = 90.0
"""The garbage collector takes up to a minute to find its way back to an API server that was away."""


async def go_through(scene: Scene, disturbance: Disturbance, chance: random.Random) -> Outcome:
    """Let people change things, disturb them, and wait until every object is in its state."""
    doubled, overlaps = set(scene.workload.choir.doubled()), len(scene.workload.ledger.overlaps())
    for replica in scene.replicas:
        replica.may_end = disturbance.may_end_operator
    changes = [asyncio.create_task(change.make()) for change in scene.workload.changes(chance)]
    violations: list[Violation] = []
    began = time.monotonic()
    try:
        await disturbance.act(scene, chance)
    except TimeoutError as error:
        violations.append(Violation("lost", str(error)))
    except (AssertionError, KubeError, psutil.Error) as error:
        violations.append(Violation("other", f"it could not be carried out: {error!r}"))
    if not disturbance.is_counted_from_start:
        began = time.monotonic()
    changes.append(asyncio.create_task(scene.workload.touch()))
    lost = await _settled(scene, changes)
    seconds = None if lost else time.monotonic() - began
    violations += [Violation("lost", text) for text in lost]
    violations += [
        Violation("left", text) for text in await _nothing_within(_REST_SECONDS, lambda: left_at_rest(scene))
    ]
    violations += [Violation("doubled", name) for name in scene.workload.choir.doubled() if name not in doubled]
    violations += [Violation("overlapping", text) for text in scene.workload.ledger.overlaps()[overlaps:]]
    for replica in scene.replicas:
        violations += [Violation("other", f"the operator ended by itself with {code}") for code in replica.ended]
        replica.ended.clear()
    return Outcome(disturbance.name, seconds, violations)


async def settled(scene: Scene) -> list[str]:
    """Wait until every object is in its state; return what is wrong if that takes too long."""
    return await _nothing_within(PATIENCE_SECONDS, scene.workload.wrong)


async def _settled(scene: Scene, changes: Sequence[asyncio.Task[None]]) -> list[str]:
    done, pending = await asyncio.wait(changes, timeout=PATIENCE_SECONDS)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    failed = [task.exception() for task in done]
    found = [f"a change could not be made: {error}" for error in failed if error is not None]
    found += [f"{len(pending)} changes could not be made"] if pending else []
    return found + await settled(scene)


async def _nothing_within(seconds: float, look: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """Look until nothing is found and return nothing, or return what was found last."""
    deadline = time.monotonic() + seconds
    while found := await look():
        if time.monotonic() > deadline:
            return found
        await asyncio.sleep(AGAIN_SECONDS)
    return []
