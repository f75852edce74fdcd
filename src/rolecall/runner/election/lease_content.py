"""What Leases contain: as their holder writes them, and as somebody leaves them who gives them up."""

from typing import Any

from rolecall.kube.references import RawObject


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
