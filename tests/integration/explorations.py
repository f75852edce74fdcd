"""Explorations that tests make in one process, in a sandbox that many of them share.

Their account is only permitted to read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from rolecall.kube.references import RawObject
from rolecall.workbench.explore.explored_object import SourceWithout
from rolecall.workbench.explore.explorer import Explorer, ExploreRequest, opened_explorer
from rolecall.workbench.explore.results import Exploration, Row
from tests.integration.crash_tests import prepared_for
from tests.integration.planned import Project
from tests.integration.sandboxes import Clusters

SEED = 4711
FILTER_OF_SETS = """
class FilterModule:
    def filters(self):
        return {"unordered": lambda items: list(set(items))}
"""
"""A filter plugin, whose ``unordered`` has another order in each process."""


@asynccontextmanager
async def explorer_of(project: Project, clusters: Clusters, obj: RawObject, **asked: Any) -> AsyncIterator[Explorer]:
    """Yield the explorer of an object that does not exist yet; it gets the project's namespace."""
    controllers, others = asked.pop("follows_controllers", False), asked.pop("others", ())
    seed, servers = asked.pop("seed", SEED), asked.pop("servers", 1)
    directory, limits = project.directory / "explore" / obj["metadata"]["name"], {"minutes": 0.0, **asked}
    async with prepared_for(
        project, clusters, obj, others, seed, servers=servers, follows_controllers=controllers
    ) as prepared:
        request, source = ExploreRequest(prepared.plan, directory, seed, **limits), SourceWithout(prepared.cluster)
        async with opened_explorer(request, prepared.sandbox, source, prepared.processes, prepared.targets) as explorer:
            yield explorer


async def explored_until(explorer: Explorer, is_found: Callable[[Exploration], bool]) -> Exploration:
    """Return what is found until there is what a test looks for, or until the exploration ends."""

    def stop_once_found(_row: Row) -> None:
        if is_found(explorer.found):
            exploring.cancel()

    exploring = asyncio.create_task(explorer.explore(print, stop_once_found))
    return await exploring
