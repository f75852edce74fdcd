"""Which shard an object belongs to: the same on every replica, in every version of Python, for ever.

FNV-1a spreads even names that differ in one digit. An object that is deleted and made anew stays in its shard, so the
replica that may still have a run of the old one is the one that reconciles the new one.
"""

from rolecall.kube.references import ObjectKey

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash of some bytes."""
    value = _OFFSET
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def shard_of(group: str, kind: str, key: ObjectKey, count: int) -> int:
    """Return the shard of an object, of ``count`` shards."""
    return fnv1a_64(f"{group}/{kind}/{key.namespace}/{key.name}".encode()) % count
