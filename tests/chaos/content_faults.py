"""Faults by users: kinds, roles, and objects removed, broken, or recreated during a run."""

import asyncio
import random
from pathlib import Path

from rolecall.kube.errors import NotFoundError
from tests.chaos.fault import Fault
from tests.chaos.heartbeats import PASSING
from tests.chaos.requests import until
from tests.chaos.scene import Scene
from tests.integration.definitions import define, undefine
from tests.support.world import is_true

_BROKEN = "- name: Write down the size\n  kubernetes.core.k8s: {definition: [\n"
_LONG_BEAT, _SHORT_BEAT = 3.0, 0.2
_SHORTEST, _LONGEST = 0.0, 3.0
_NOTICE_SECONDS = 60.0


async def remove_the_kind(scene: Scene, chance: random.Random) -> None:
    """Remove a CRD with its objects during a run of one of them; restore all after a while."""
    workload = scene.workload
    await workload.passings.start_long_run(workload.passings.names[0], _LONG_BEAT)
    await undefine(workload.world.client, PASSING)
    await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))
    await define(workload.world.client, PASSING)
    for name in workload.passings.names:
        await workload.passings.create(name, _SHORT_BEAT)


async def recreate(scene: Scene, chance: random.Random) -> None:
    """Delete an object during its run and immediately create another with its name."""
    passings = scene.workload.passings
    name = chance.choice(passings.names)
    await passings.start_long_run(name, _LONG_BEAT)
    await passings.recreate(name, _SHORT_BEAT)


async def break_the_role(scene: Scene, _chance: random.Random) -> None:
    """Break a role's file until an object has failed because of it; then repair it."""
    workload, tasks = scene.workload, scene.directory / "project" / "roles" / "heartbeat" / "tasks" / "main.yml"
    good = tasks.read_text()
    name = workload.heartbeats.names[0]

    async def has_failed() -> bool:
        try:
            return is_true(await workload.world.get(workload.heartbeats.gvk, name), "Failure")
        except NotFoundError:
            return False  # it is being recreated

    _replace(tasks, _BROKEN)
    try:
        await workload.heartbeats.resize(name, _SHORT_BEAT)
        await until(has_failed, _NOTICE_SECONDS, f"{name} has failed")
    finally:
        _replace(tasks, good)


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically, as an editor does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


CONTENT = [
    Fault("CRD: removed and put back", remove_the_kind),
    Fault("object: deleted and recreated during its run", recreate),
    Fault("role: broken and repaired", break_the_role),
]
