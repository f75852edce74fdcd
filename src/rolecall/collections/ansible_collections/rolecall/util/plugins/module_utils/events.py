# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a Kubernetes Event looks like, the first time and every time after.

Pure functions on raw events of the core API. An event that says what an older one of its name said continues the
older one's count and begins when that began; any other starts counting at one. The module k8s_event reads and writes
the events.
"""

from datetime import datetime
from typing import Any

SAME = ("reason", "message", "type")


def new_event(parameters: dict[str, Any], involved: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    """Give the event that the module's parameters describe, seen for the first time at `now` (UTC)."""
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
    """Give the wanted event as a continuation of the one that was found, if both say the same."""
    if any(wanted[key] != found.get(key) for key in SAME):
        return wanted
    first = found.get("firstTimestamp") or wanted["firstTimestamp"]
    return {**wanted, "count": (found.get("count") or 0) + 1, "firstTimestamp": first}
