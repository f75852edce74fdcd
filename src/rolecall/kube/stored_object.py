"""An object as a cache keeps it: ready to be sent, with the few facts by which it is looked up.

The bytes of an object take a fraction of the memory of its dictionaries, and answering with them costs nothing. The
cache in ``rolecall.controller`` fills these, the proxy in ``rolecall.runs`` reads them.
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
        """Pack an object."""
        labels = metadata_of(obj).get("labels") or {}
        return cls(
            ObjectKey.of_object(obj),
            resource_version_of(obj),
            {sys.intern(str(name)): sys.intern(str(value)) for name, value in labels.items()},
            json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"),
        )
