"""What must hold at the end of a history, when its faults have ended and all is quiet.

Then the cluster is as if there had been no fault (``_differences``), no run starts without a cause, a later change is
still seen, and nothing is left of what no longer exists: no files, no memory, no metrics.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from rolecall.kube.metadata import annotation_of, is_being_deleted, uid_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION
from tests.simulation.kinds import THING
from tests.simulation.memory import remembered
from tests.simulation.runs import CONFIG_MAPS, FINALIZER, NAMESPACE, PRUNE_SECONDS, needs
from tests.simulation.user import PARTS, THINGS

if TYPE_CHECKING:
    from tests.simulation.history import History

LARGEST_SIZE: Final = 80
"""The largest size that a strict schema accepts in a status."""

_SETTLE_SECONDS: Final = 900
_QUIET_SECONDS: Final = 60.0

_TIMEOUT_SECONDS: Final = 120.0
"""How long the last fault may delay an operator: a run that waits for a lost response ends by its timeout."""

_END_SECONDS: Final = 45.0
"""How long a run lasts at most."""

_PRUNED_SECONDS: Final = PRUNE_SECONDS + 4 * _END_SECONDS
"""After this time, what an edit has taken away is pruned."""

_ZERO: Final = frozenset(
    {
        "ansible_operator_failing_objects",
        "ansible_operator_oldest_waiting_request_seconds",
        "controller_runtime_active_workers",
        "workqueue_depth",
        "workqueue_unfinished_work_seconds",
    }
)
"""The metrics that are zero at rest."""


class Ending:
    """The end of one history."""

    def __init__(self, history: "History") -> None:
        self._history, self._server, self._user = history, history.server, history.user

    async def findings(self) -> list[str]:
        """Return what doesn't hold: the findings of the first check with any. The operators stop in between."""
        return (
            await self._unsettled("after the faults")
            or await self._restless()
            or await self._forgotten()
            or await self._later()
            or await self._unpruned()
            or await self._interrupted()
        )

    async def _unsettled(self, when: str) -> list[str]:
        """Wait until nothing differs; return the differences after the limit."""
        for _ in range(_SETTLE_SECONDS):
            if not self._differences():
                return []
            await asyncio.sleep(1.0)
        return [f"{when}: {text}" for text in self._differences()]

    async def _forgotten(self) -> list[str]:
        """Return what is no longer followed of what runs have read and made during the faults."""
        self._user.set_settings()
        if found := await self._unsettled("after a change of what was read"):
            return found
        for name in self._user.living:
            self._server.handle("DELETE", f"{CONFIG_MAPS}/{name}")
        return await self._unsettled("after dependents of the time of the faults were deleted")

    async def _later(self) -> list[str]:
        """Return what later changes don't reach, or reach with more runs than one for each change."""
        living = self._user.living
        is_counted = self._history.period is None and not self._history.prunes  # both run without a change
        for change in (self._enlarge, self._user.request):
            before = len(self._history.facts)
            for name in living:
                change(name)
            if found := await self._unsettled("after a later change"):
                return found
            await asyncio.sleep(_END_SECONDS)
            runs = len(self._history.facts) - before
            if is_counted and runs != len(living):
                return [f"{runs} runs for one change of {len(living)} objects, expected one each"]
        for name in living:
            self._server.handle("DELETE", f"{CONFIG_MAPS}/{name}")
        if found := await self._unsettled("after dependents were deleted"):
            return found
        await asyncio.sleep(_END_SECONDS)
        for name in living:
            finalizers = self._server.handle("GET", f"{THINGS}/{name}").body["metadata"].get("finalizers") or []
            if self._history.has_finalizer and FINALIZER not in finalizers:
                return [f"{name} has no finalizer after another run"]
        return self._unowned() + self._left_files() + self._memories() + self._wrong_metrics()

    def _enlarge(self, name: str) -> None:
        self._user.write_spec(name, self._user.living[name] | {"size": 2000}, is_new=False)

    async def _unpruned(self) -> list[str]:
        """Return the parts that aren't pruned after an edit took them away, or are although a user has made them."""
        if not self._history.prunes:
            return []
        self._delete_unmarked()
        both, left = {"parts": list(PARTS)}, {"parts": list(PARTS[1:])}
        regret_seconds = self._history.draw.uniform(2 * PRUNE_SECONDS, 4 * PRUNE_SECONDS)
        for parts, seconds in ((both, _PRUNED_SECONDS), (left, regret_seconds), (both, _PRUNED_SECONDS), (left, 0)):
            for name, spec in self._user.living.items():
                self._user.write_spec(name, spec | parts | {"seconds": 12}, is_new=False)
            await asyncio.sleep(seconds)
        if found := await self._unsettled("after changes of parts"):
            return found
        await asyncio.sleep(_PRUNED_SECONDS)
        for name in self._user.living:
            part = self._server.handle("GET", f"{CONFIG_MAPS}/{name}-{PARTS[0]}")
            is_kept = part.body["metadata"].get("uid") in self._user.made
            if (part.status == 200) != is_kept:
                found.append(f"{name}-{PARTS[0]} {'is kept' if part.status == 200 else 'is gone'}")
        return found

    def _delete_unmarked(self) -> None:
        """Delete the parts without a mark, because a fault has hit their creation; runs make them again."""
        for name in self._user.living:
            path = f"{CONFIG_MAPS}/{name}-{PARTS[0]}"
            part = self._server.handle("GET", path)
            is_unmarked = part.status == 200 and annotation_of(part.body, MADE_FOR_ANNOTATION) is None
            if is_unmarked and uid_of(part.body) not in self._user.made:
                self._server.handle("DELETE", path)

    async def _interrupted(self) -> list[str]:
        """Return the statuses that report a running role after the operators were stopped in the middle of a run."""
        for name, spec in self._user.living.items():
            self._user.write_spec(name, spec | {"seconds": 40}, is_new=False)
        await asyncio.sleep(self._history.draw.uniform(1, 30))
        for replica in self._history.replicas:
            await replica.stop()
        found = []
        for name in self._user.living:
            status = self._server.handle("GET", f"{THINGS}/{name}").body.get("status") or {}
            conditions = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions") or ()}
            if conditions.get("Running") == ("True", "Running"):
                found.append(f"{name} is reported as running after the operators have stopped")
        return found

    def _unowned(self) -> list[str]:
        """Return the objects that runs have created without their owner."""
        found = []
        for name, spec in self._user.living.items():
            uid = self._server.handle("GET", f"{THINGS}/{name}").body["metadata"]["uid"]
            for each in needs(name, spec, ""):
                metadata = self._server.handle("GET", f"{CONFIG_MAPS}/{each}").body["metadata"]
                owners = [reference["uid"] for reference in metadata.get("ownerReferences") or ()]
                if metadata.get("uid") not in self._user.made and uid not in owners:
                    found.append(f"{each} has the owners {owners}, expected {uid}")
        return found

    def _left_files(self) -> list[str]:
        """Return the files of runs and of deleted objects that remain at rest."""
        left = len(list(self._history.root.glob("replica-*/kubeconfig-*")))
        going_on = sum(fact.ended is None for fact in self._history.facts)  # with a period
        found = [f"{left} kubeconfigs remain, for {going_on} runs"] if left > going_on else []
        if self._history.count == 1:
            things = self._history.root / "replica-0" / THING.gvk.group / THING.gvk.version / THING.gvk.kind / NAMESPACE
            workspaces = sorted({path.name for path in things.glob("*")} - self._user.living.keys())
            found += [f"the workspace of the deleted {name} remains" for name in workspaces]
        return found

    def _memories(self) -> list[str]:
        """Return what the operators remember of deleted objects at rest."""
        keys = {ObjectKey(NAMESPACE, name) for name, spec in self._user.wanted.items() if spec is None}
        deleted = [
            obj for _, event, obj in self._server.history if event == "DELETED" and obj["kind"] == THING.gvk.kind
        ]
        living = {self._server.handle("GET", f"{THINGS}/{name}").body["metadata"]["uid"] for name in self._user.living}
        uids = {obj["metadata"]["uid"] for obj in deleted} - living  # after a restore, some of the deleted exist
        found: list[str] = []
        for replica in self._history.replicas:
            if (manager := replica.manager) is not None:
                # The requests that wait in a follower name the causes of living objects, old uids included.
                found += remembered(manager, keys | (uids if manager.dispatcher.has_started else set()))
        return [f"{path} remembers a deleted object" for path in found]

    def _wrong_metrics(self) -> list[str]:
        """Return the metrics of a single operator at rest that report work, failures, or deleted objects."""
        [*others, replica] = self._history.replicas
        if others or self._history.period is not None or replica.metrics is None:
            return []
        samples = [sample for metric in replica.metrics.registry.collect() for sample in metric.samples]
        found = [f"{each.name} is {each.value:g} at rest" for each in samples if each.name in _ZERO and each.value]
        counted = {each.labels["name"] for each in samples if each.name == "resource_created_at_seconds"}
        if counted != self._user.living.keys():
            found.append(f"metrics have the objects {sorted(counted)}, expected {sorted(self._user.living)}")
        return found

    async def _restless(self) -> list[str]:
        """Return the runs that start although nothing changes, or the period that doesn't start any."""
        await asyncio.sleep(_TIMEOUT_SECONDS)
        before = len(self._history.facts)
        quiet = _QUIET_SECONDS if self._history.period is None else 3 * _QUIET_SECONDS
        await asyncio.sleep(quiet)
        found, living = len(self._history.facts) - before, self._user.living.values()
        expected = slack = 0
        if self._history.period is not None:
            expected = sum(int(quiet / (self._history.period + spec.get("seconds", 1))) for spec in living)
            slack = 2 * len(living)
        if abs(found - expected) > slack:
            return [f"without any change, {found} runs started in {quiet:g} s, expected {expected}"]
        return await self._unsettled("later")

    def _differences(self) -> list[str]:
        """Return how the cluster differs from what the specs request."""
        found = []
        for name, spec in self._user.wanted.items():
            obj = self._server.handle("GET", f"{THINGS}/{name}")
            if spec is None:
                found += [f"{name} isn't deleted"] if obj.status == 200 else []
                continue
            if obj.status != 200:
                found.append(f"{name} doesn't exist")
                continue
            for each, data in needs(name, spec, self._user.settings_value).items():
                made = self._server.handle("GET", f"{CONFIG_MAPS}/{each}")
                has = made.body.get("data") or {}
                if made.status != 200 or any(has.get(key) != value for key, value in data.items()):
                    found.append(f"{name}: ConfigMap {each} should have {data}, has {has or made.status}")
            if self._history.manages_status:
                has_size = not self._history.is_strict or spec["size"] <= LARGEST_SIZE
                found += [f"{name}: {text}" for text in wrong_status(obj.body, spec, has_size=has_size)]
        return found


_AFTER_SUCCESS = (
    ("Successful", "status", "True"),
    ("Ready", "status", "True"),
    ("Failure", "status", "False"),
    ("Running", "reason", "Successful"),
)


def wrong_status(obj: RawObject, spec: RawObject, *, has_size: bool) -> list[str]:
    """Return how the status of a living object differs from that after a success with this spec.

    Without ``has_size``, the API server rejects the size.
    """
    status = obj.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    found = [] if status.get("size") == spec["size"] or not has_size else [f"status.size is {status.get('size')}"]
    generation = obj["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        found.append(f"observedGeneration is {status.get('observedGeneration')} of {generation}")
    for kind, field, value in _AFTER_SUCCESS:
        if (seen := conditions.get(kind, {}).get(field)) != value:
            found.append(f"the {field} of {kind} is {seen}, expected {value}")
    found += ["is being deleted"] if is_being_deleted(obj) else []
    return found
