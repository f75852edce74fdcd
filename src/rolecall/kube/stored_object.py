"""An object as a cache stores it: serialized, with the fields that are needed for lookups.

The JSON of an object takes a fraction of the memory of its dictionaries and can be sent as it is. The cache in
``rolecall.controller`` stores these objects, and the proxy reads them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.kube.shared_strings import shared_labels


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of an object; ``body`` is its JSON."""

    key: ObjectKey
    resource_version: str
    labels: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, obj: RawObject) -> Self:
        """Return the stored form of an object."""
        return cls(
            ObjectKey.of_object(obj),
            resource_version_of(obj),
            shared_labels(obj),
            json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"),
        )
