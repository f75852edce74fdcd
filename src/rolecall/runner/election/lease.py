"""The Leases of sharding: their names, what they say, and one consistent view of all of them.

There are three kinds. The *group Lease* has the name of the election; ``shards/<N>`` holds it while any replica with
that number of shards works, so that a replica without shards, or with another number, does not. Each replica has a
*member Lease*, which it renews. A *shard Lease* is a record: its holder does not renew it, and it is valid while the
member Lease of its holder is.

What Leases contain: as their holder writes them, and as somebody leaves them who gives them up.

Attempts at something that may fail or hang, each limited in time; a failure is logged once, not at every attempt.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import annotation_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger


def spec_of(lease: RawObject) -> dict[str, Any]:
    """Return what a Lease says."""
    found = lease.get("spec")
    return found if isinstance(found, dict) else {}


def held_lease(lease: RawObject, holder: str, seconds: int, timestamp: str) -> RawObject:
    """Return a Lease as its holder, who takes or renews it, writes it."""
    old = spec_of(lease)
    is_renewed = old.get("holderIdentity") == holder
    spec = {
        **old,
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "renewTime": timestamp,
        "acquireTime": old.get("acquireTime", timestamp) if is_renewed else timestamp,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if is_renewed or not old else 1),
    }
    return {**lease, "spec": spec}


def free_lease(lease: RawObject, timestamp: str) -> RawObject:
    """Return a Lease without a holder."""
    spec = {**spec_of(lease), "leaseDurationSeconds": 1, "renewTime": timestamp}
    spec.pop("holderIdentity", None)
    return {**lease, "spec": spec}


PREFERRED_HOLDER_ANNOTATION = "rolecall.dev/next-holder"
"""Whom a shard Lease is meant for next."""


@dataclass(frozen=True, slots=True)
class LeaseNames:
    """The names of the Leases of one election with ``count`` shards; ``group`` is the Lease of the election."""

    group: ObjectKey
    count: int

    @property
    def group_holder(self) -> str:
        """The holder of the group Lease."""
        return f"shards/{self.count}"

    def member(self, identity: str) -> ObjectKey:
        """Return the Lease of a member; the part of an identity behind the last ``_`` is unique."""
        return ObjectKey(self.group.namespace, f"{self._member_prefix}{identity.rpartition('_')[2]}")

    def shard(self, index: int) -> ObjectKey:
        """Return the Lease of a shard."""
        return ObjectKey(self.group.namespace, f"{self.group.name}-shard-{index}-of-{self.count}")

    @property
    def _member_prefix(self) -> str:
        return f"{self.group.name}-member-of-{self.count}-"

    def view(self, leases: Iterable[RawObject]) -> "View":
        """Return what the Leases of a list say; those of others are ignored."""
        records = {record.name: record for record in map(Record.of, leases)}
        shards = {index: records.get(self.shard(index).name) for index in range(self.count)}
        return View(
            records.get(self.group.name),
            {name: record for name, record in records.items() if name.startswith(self._member_prefix)},
            {index: record for index, record in shards.items() if record is not None},
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One Lease as it was read; ``version`` is its resourceVersion, ``seconds`` its duration (0 if it has none)."""

    name: str
    holder: str
    version: str
    seconds: float
    preferred_holder: str
    lease: RawObject

    @classmethod
    def of(cls, lease: RawObject) -> Self:
        """Return the record of a Lease."""
        spec = spec_of(lease)
        return cls(
            str(lease["metadata"]["name"]),
            str(spec.get("holderIdentity") or ""),
            resource_version_of(lease),
            float(spec.get("leaseDurationSeconds") or 0),
            annotation_of(lease, PREFERRED_HOLDER_ANNOTATION) or "",
            lease,
        )


@dataclass(frozen=True, slots=True)
class View:
    """All Leases at one moment: the group Lease, member Leases by name, shard Leases by index."""

    group: Record | None
    members: Mapping[str, Record]
    shards: Mapping[int, Record]


def meant_for(lease: RawObject, preferred_holder: str) -> RawObject:
    """Return a Lease with a note of who shall hold it next; an empty ``preferred_holder`` removes the note."""
    metadata = dict(lease["metadata"])
    annotations = {**(metadata.get("annotations") or {}), PREFERRED_HOLDER_ANNOTATION: preferred_holder}
    if not preferred_holder:
        del annotations[PREFERRED_HOLDER_ANNOTATION]
    metadata["annotations"] = annotations
    return {**lease, "metadata": metadata}


logger = get_logger("leader")


@dataclass(slots=True)
class Attempts:
    """Attempts to read or write a Lease; ``trouble`` says why the last one failed, empty if it did not."""

    clock: Clock
    lease: str
    trouble: str = field(default="", init=False)

    async def within(self, seconds: float, work: Coroutine[Any, Any, bool]) -> bool:
        """Return what the work returns; False if it raises a KubeError or has not ended after so many seconds."""
        task = asyncio.create_task(work)
        timer = asyncio.create_task(sleep(self.clock, seconds))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._note(f"no answer within {seconds:g} s")
                return False
            succeeded = task.result()
        except KubeError as error:
            self._note(str(error))
            return False
        finally:
            for each in (task, timer):
                each.cancel()
        self.trouble = ""
        return succeeded

    def _note(self, text: str) -> None:
        if text != self.trouble:
            logger.warning("Could not read or write the Lease", lease=self.lease, error=text)
        self.trouble = text
