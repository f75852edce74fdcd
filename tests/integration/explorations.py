"""Explorations that tests make in one process, in a sandbox that many of them share.

Their account is only permitted to read.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.warm.starter import starter_for
from rolecall.system.processes import reap_children
from rolecall.workbench.explore.explored_object import SourceWithout
from rolecall.workbench.explore.explorer import Explorer, ExploreRequest, opened_explorer
from rolecall.workbench.plan.planner import Target, Targets
from tests.integration.planned import Project
from tests.integration.sandboxes import Clusters

SEED = 4711


@asynccontextmanager
async def explorer_of(project: Project, clusters: Clusters, obj: RawObject, **asked: Any) -> AsyncIterator[Explorer]:
    """Yield the explorer of an object that does not exist yet; it gets the project's namespace."""
    gvk, name = GVK.of_object(obj), obj["metadata"]["name"]
    with project.entered():
        controllers, others = asked.pop("follows_controllers", False), asked.pop("others", ())
        plan = project.request(clusters.reader, kind=gvk.kind, name=name, follows_controllers=controllers)
        request = ExploreRequest(plan, project.directory / "explore" / name, SEED, **{"minutes": 10.0, **asked})
        [watch] = [watch for watch in plan.watches if watch.gvk == gvk]
        for each in (obj, *others):
            each["metadata"]["namespace"] = project.namespace
        targets = Targets((Target(watch, ObjectKey(project.namespace, name), obj),), others=tuple(others))
        async with (
            clusters.opened(project.namespace, is_new=False) as (_, sandbox),
            await Client.connect(str(clusters.reader)) as cluster,
        ):
            reap_children()
            try:
                async with (
                    starter_for(plan.watches, warm=plan.settings.warm) as starter,
                    opened_explorer(
                        request, sandbox, SourceWithout(cluster), ProcessRunner(starter), targets
                    ) as explorer,
                ):
                    yield explorer
            finally:
                await sandbox.forget()
