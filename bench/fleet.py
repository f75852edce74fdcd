"""A fleet: as many objects of each of the four kinds, and this repository's operator that reconciles them.

The operator is a command as a person types it, in a directory with ``watches.yaml`` and the roles. That all is done is
seen in the objects; how often it has run is counted in its log.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.operator_process import Operator, running
from bench.stage import PROJECT, Stage, until

from rolecall.kube.references import GVK, RawObject
from rolecall.runner.reconcile.reconciler import PERIOD_ANNOTATION

PROGRAM = (sys.executable, "-m", "rolecall")
_APPS = "apps/v1"
_PARTS = ("watches.yaml", "roles", "ansible.cfg")
_DONE_SECONDS, _PER_OBJECT_SECONDS = 120.0, 5.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Objects of the four kinds in some namespaces, and the directory in which their operator runs."""

    stage: Stage
    directory: Path
    namespaces: Sequence[str]
    objects: Sequence[RawObject]

    @asynccontextmanager
    async def operator(self, *flags: str) -> AsyncIterator[Operator]:
        """Run the operator until the end of the block; it is ready."""
        command = (*PROGRAM, "run", "--zap-encoder", "json", *flags)
        environment = {"KUBECONFIG": str(self.stage.kubeconfig), "WATCH_NAMESPACE": ",".join(self.namespaces)}
        async with running(command, self.directory, environment) as operator:
            await operator.ready()
            yield operator

    async def create(self) -> None:
        """Create all objects."""
        for obj in self.objects:
            await self.stage.client.create(obj)

    async def done(self) -> None:
        """Wait until all objects are reconciled and all songs are at their end. Raises TimeoutError."""

        async def is_done() -> bool:
            await asyncio.sleep(_LOOK_SECONDS)
            kinds = {GVK.of_object(obj) for obj in self.objects if obj["apiVersion"] != _APPS}
            return all([await self._are_done(gvk) for gvk in kinds])

        await until(is_done, _DONE_SECONDS + _PER_OBJECT_SECONDS * len(self.objects), "all objects are reconciled")

    async def _are_done(self, gvk: GVK) -> bool:
        lists = [self.stage.client.list_pages(gvk, namespace) for namespace in self.namespaces]
        return all([_is_done(obj) for pages in lists async for page, _ in pages for obj in page])


async def fleet(stage: Stage, name: str, count: int, most_in_namespace: int = 200) -> Fleet:
    """Make a directory with the project, namespaces, and the objects, which are still to be created.

    Each run of a song lists all words of its namespace, so a thousand objects in one would measure that list.
    """
    directory = stage.subdirectory(name)
    for part in _PARTS:
        copy = shutil.copytree if (PROJECT / part).is_dir() else shutil.copy
        copy(PROJECT / part, directory / part)
    namespaces = [await stage.namespace(f"bench-{name}-{number}") for number in range(-(-count // most_in_namespace))]
    makers = (_foo, _hikawa, _pod_scaler, _replica_set)
    made = [make(number) for number in range(count // len(makers)) for make in makers]
    objects = [_placed(obj, namespaces[number // most_in_namespace]) for number, obj in enumerate(made)]
    return Fleet(stage, directory, namespaces, objects)


def _is_done(obj: RawObject) -> bool:
    status = obj.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return conditions.get("Successful") == "True" and status.get("kiyoshied", True)


def _placed(obj: RawObject, namespace: str) -> RawObject:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


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
    # Every 15 s, as watches.yaml has it, would delay the songs.
    made["metadata"]["annotations"] = {PERIOD_ANNOTATION: "1h"}
    return made


def _replica_set(number: int) -> RawObject:
    labels = {"app": f"counted-{number}"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}}
    return _object(_APPS, "ReplicaSet", number, {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod})


def _object(api_version: str, kind: str, number: int, spec: RawObject) -> RawObject:
    metadata = {"name": f"{kind.lower()}-{number}"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
