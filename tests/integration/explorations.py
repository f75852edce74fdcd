"""Explorations that tests make in one process, in a sandbox that many of them share.

Their account is only permitted to read.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rolecall.kube.references import RawObject
from rolecall.workbench.explore.explored_object import SourceWithout
from rolecall.workbench.explore.explorer import Explorer, ExploreRequest, opened_explorer
from tests.integration.crash_tests import prepared_for
from tests.integration.planned import Project
from tests.integration.sandboxes import Clusters

SEED = 4711


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
