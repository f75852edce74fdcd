"""The Leases of leader election and of shards: their names and contents, and one consistent view of all of them.

There are three kinds of Leases of shards. The *group Lease* has the name of the election; ``shards/<N>`` holds it while
any replica with that number of shards works, so that a replica without shards, or with another number, doesn't. Each
replica has a *member Lease*, which it renews. A *shard Lease* is a record: its holder doesn't renew it, and it is valid
while the member Lease of its holder is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from rolecall.kube.metadata import annotation_of, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.system.clock import Clock

LEASE = GVK("coordination.k8s.io", "v1", "Lease")
PREFERRED_HOLDER_ANNOTATION = "rolecall.dev/next-holder"
"""The member that should take a free shard Lease next."""


def timestamp(clock: Clock) -> str:
    """Return the time of the wall clock in the format of Leases."""
    return datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def spec_of(lease: RawObject) -> dict[str, Any]:
    """Return the spec of a Lease, empty if it has none."""
    found = lease.get("spec")
    return found if isinstance(found, dict) else {}


def new_lease(key: ObjectKey) -> RawObject:
    """Return a Lease without a spec."""
    metadata = {"name": key.name, "namespace": key.namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}


def held_lease(lease: RawObject, holder: str, seconds: int, now: str) -> RawObject:
    """Return a Lease that its holder takes or renews."""
    old = spec_of(lease)
    is_renewed = old.get("holderIdentity") == holder
    spec = {
        **old,
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "renewTime": now,
        "acquireTime": old.get("acquireTime", now) if is_renewed else now,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if is_renewed or not old else 1),
    }
    return {**lease, "spec": spec}


def free_lease(lease: RawObject, now: str) -> RawObject:
    """Return a Lease without a holder."""
    spec = {**spec_of(lease), "leaseDurationSeconds": 1, "renewTime": now}
    spec.pop("holderIdentity", None)
    return {**lease, "spec": spec}


def with_preferred_holder(lease: RawObject, holder: str) -> RawObject:
    """Return a Lease that names its preferred next holder; an empty one removes the annotation."""
    metadata = dict(lease["metadata"])
    annotations = {**(metadata.get("annotations") or {}), PREFERRED_HOLDER_ANNOTATION: holder}
    if not holder:
        del annotations[PREFERRED_HOLDER_ANNOTATION]
    metadata["annotations"] = annotations
    return {**lease, "metadata": metadata}


@dataclass(frozen=True, slots=True)
class LeaseRecord:
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
class LeaseView:
    """All Leases at one moment: the group Lease, member Leases by name, shard Leases by index."""

    group: LeaseRecord | None
    members: Mapping[str, LeaseRecord]
    shards: Mapping[int, LeaseRecord]


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

    def view(self, leases: Iterable[RawObject]) -> LeaseView:
        """Return the view of a list of Leases; those of other elections are ignored."""
        records = {record.name: record for record in map(LeaseRecord.of, leases)}
        shards = {index: records.get(self.shard(index).name) for index in range(self.count)}
        return LeaseView(
            records.get(self.group.name),
            {name: record for name, record in records.items() if name.startswith(self._member_prefix)},
            {index: record for index, record in shards.items() if record is not None},
        )
