"""Files of runs are removed with their object, also if it was deleted while no operator was running."""

import os
from pathlib import Path

from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import TIMEOUT_SECONDS, World, eventually, is_true

GOOD = "- name: Do nothing\n  ansible.builtin.debug: {msg: fine}\n"


async def test_workspace_is_deleted_with_the_object(world: World, thing_operator: Operator) -> None:
    """Immediately if the operator is running, otherwise at its next start. Those of existing objects stay."""
    work = thing_operator.directory / "work"
    thing_operator.arguments += ("--work-dir", str(work))
    write_project(thing_operator.directory, GOOD)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    for name in ("one", "two", "three"):
        await world.create(MANIFEST.replace("one", name))
    for name in ("one", "two", "three"):
        await world.wait_for(THING, name, lambda obj: is_true(obj, "Successful"))
    base = work / THING.group / THING.version / THING.kind / world.namespace
    assert sorted(path.name for path in base.iterdir()) == ["one", "three", "two"]

    await world.delete(THING, "one")
    await eventually(lambda: names(base), lambda left: left == ["three", "two"], TIMEOUT_SECONDS, "it went at once")
    thing_operator.kill()
    (work / "kubeconfig-123456").write_text("of a run that was killed")
    os.utime(work / "kubeconfig-123456", (1, 1))
    await world.delete(THING, "two")
    thing_operator.start()
    await eventually(lambda: names(base), lambda left: left == ["three"], TIMEOUT_SECONDS, "it went at the next start")
    assert not (work / "kubeconfig-123456").exists()


async def names(directory: Path) -> list[str]:
    """Return the names in a directory, sorted."""
    return sorted(os.listdir(directory))  # noqa: PTH208 - a test may wait for its disk
