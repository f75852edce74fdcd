# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Builds Kubernetes Events and counts repeated ones.

Pure functions on raw events of the core API. An event with the same content as the existing one of its name continues
its count and keeps its first timestamp; any other event starts with a count of one. The module ``k8s_event`` reads and
writes the events.
"""

from datetime import datetime
from typing import Any

SAME = ("reason", "message", "type")


def new_event(parameters: dict[str, Any], involved: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    """Return a new event for the module's parameters, first seen at ``now`` (UTC)."""
    seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    suffix = f".{int(now.timestamp() * 1_000_000):x}" if parameters["appendTimestamp"] else ""
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": parameters["name"] + suffix, "namespace": parameters["namespace"]},
        "reason": parameters["reason"],
        "message": parameters["message"],
        "type": parameters["type"],
        "source": parameters["source"],
        "reportingComponent": parameters["reportingComponent"],
        "count": 1,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
    }
    return event if involved is None else {**event, "involvedObject": involved}


def increment_count(wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the wanted event with the count of the found one plus one, if both have the same content."""
    if any(wanted[key] != found.get(key) for key in SAME):
        return wanted
    first = found.get("firstTimestamp") or wanted["firstTimestamp"]
    return {**wanted, "count": (found.get("count") or 0) + 1, "firstTimestamp": first}
