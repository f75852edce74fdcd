"""Stand-ins for the controllers of a sandbox: a workload is ready as soon as something reads it.

The real controllers and their simulated nodes take seconds for each change. These give a workload that a run wrote the
status that it would have in the end. They create no pods or ReplicaSets.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.errors import ConflictError, NotFoundError, NotServedError
from rolecall.kube.metadata import generation_of, is_being_deleted, metadata_of, status_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.comparison.end_states import ObjectId
from rolecall.workbench.crashtest.object_under_test import OF_GARBAGE_COLLECTOR
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.plan.sandbox_import import Controllers

_NAMESPACE: Final = GVK("", "v1", "Namespace")
_ACCOUNT: Final = GVK("", "v1", "ServiceAccount")
_TIME: Final = "2000-01-01T00:00:00Z"
_REPLICATED: Final = frozenset({"deployments", "replicasets", "statefulsets", "replicationcontrollers"})
_WORKLOADS: Final = _REPLICATED | {"daemonsets", "pods", "jobs", "persistentvolumeclaims"}
_GROUPS: Final = frozenset({"", "apps", "batch"})


@dataclass(slots=True, kw_only=True)
class InstantControllers(Controllers):
    """Makes the workloads in ``log`` ready; ``client`` is the administrator of the sandbox."""

    client: Client
    log: WriteLog | None = None
    _done: dict[ObjectId, str] = field(default_factory=dict)

    async def need(self) -> None:
        """Give each namespace the service account without which it can't have pods."""
        client = self.client
        names = {ObjectKey.of_object(each).name async for page, _ in client.list_pages(_NAMESPACE) for each in page}
        accounts = [ObjectKey.of_object(each) async for page, _ in client.list_pages(_ACCOUNT) for each in page]
        for name in names - {each.namespace for each in accounts if each.name == "default"}:
            metadata = {"name": "default", "namespace": name}
            with suppress(ConflictError, NotFoundError):  # another request created it, or removed the namespace
                await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})

    async def before_read(self, path: str) -> None:
        """Make workloads ready before a run reads anything."""
        del path
        await self.catch_up()

    async def catch_up(self) -> None:
        """Make workloads ready, and let deletions end that wait for the garbage collector."""
        written = {self.log.primary_id: "its spec"} | self.log.objects if self.log else {}
        for ident, version in written.items():
            resource = await self.client.resource_for_path(ident.group, ident.version, ident.plural)
            if version and self._done.get(ident) != version and resource:
                self._done[ident] = version
                await _catch_up(self.client, resource.gvk, ident)

    def follow(self, log: WriteLog) -> None:
        """Follow the writes of another log from now on."""
        self.log, self._done = log, {}

    async def _adjust(self) -> None:
        """Start and stop nothing."""


async def _catch_up(client: Client, gvk: GVK, ident: ObjectId) -> None:
    """Make an object ready if it is a workload, or remove it if only the garbage collector would keep it."""
    try:
        obj = await client.get(gvk, ident.key)
        finalizers = list(metadata_of(obj).get("finalizers") or ())
        if is_being_deleted(obj) and finalizers and OF_GARBAGE_COLLECTOR.issuperset(finalizers):
            await client.patch(gvk, ident.key, {"metadata": {"finalizers": None}})
        elif ident.group in _GROUPS and ident.plural in _WORKLOADS and not is_being_deleted(obj):
            status = ready_status(ident.plural, obj)
            if any(status_of(obj).get(name) != value for name, value in status.items()):
                await client.patch(gvk, ident.key, {"status": status}, "status")
    except (NotFoundError, NotServedError, ConflictError):
        pass


def ready_status(plural: str, obj: RawObject) -> dict[str, Any]:
    """Return the status that a workload has when its controller and its pods are done."""
    generation, count = generation_of(obj), int((obj.get("spec") or {}).get("replicas", 1))
    if plural in _REPLICATED:
        names = ["replicas", "readyReplicas", "availableReplicas"]
        names += ["updatedReplicas"] if plural in ("deployments", "statefulsets") else []
        status: dict[str, Any] = {"observedGeneration": generation, **dict.fromkeys(names, count)}
        if plural == "deployments":
            reasons = {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
            status["conditions"] = [_condition(*each) for each in reasons.items()]
        return status
    if plural == "daemonsets":
        daemons = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable")
        every = dict.fromkeys((*daemons, "updatedNumberScheduled"), 1)
        return {"observedGeneration": generation, "numberMisscheduled": 0, **every}
    if plural == "jobs":
        ends = [_condition(each, "CompletionsReached") for each in ("SuccessCriteriaMet", "Complete")]
        return {"startTime": _TIME, "completionTime": _TIME, "succeeded": 1, "conditions": ends}
    if plural == "persistentvolumeclaims":
        return {"phase": "Bound"}
    types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {"phase": "Running", "conditions": [{"type": each, "status": "True"} for each in types]}


def _condition(kind: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": _TIME}
