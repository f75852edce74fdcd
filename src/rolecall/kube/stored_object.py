"""An object as a cache stores it: serialized, with the fields that are needed for lookups.

The JSON of an object takes a fraction of the memory of its dictionaries and can be sent as it is. The cache in
``rolecall.controller`` stores these objects, and the proxy reads them.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import ObjectKey, RawObject


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
        labels = metadata_of(obj).get("labels") or {}
        return cls(
            ObjectKey.of_object(obj),
            resource_version_of(obj),
            {sys.intern(str(name)): sys.intern(str(value)) for name, value in labels.items()},
            json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"),
        )
