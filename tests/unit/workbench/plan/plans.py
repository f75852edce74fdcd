"""Plans for tests: values as the planner gives them."""

import json
from datetime import UTC, datetime
from typing import Any

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.plan.model import ObjectChange, ObjectPlan, PlannedWrite

FOO = GVK("example.com", "v1", "Foo")
TASK = TaskName("foo : Write the settings", "roles/foo/tasks/main.yml:3")
HIDDEN = TaskName("foo : Write in private", "roles/foo/tasks/main.yml:9", is_hidden=True)
STARTED = datetime(2026, 1, 10, 12, 0, 0, tzinfo=UTC).timestamp()
ENDED = STARTED + 3
SERVER_SET = {"uid": "u-1", "resourceVersion": "7", "generation": 2, "managedFields": [{}], "selfLink": "/x"}


def config_map(name: str = "settings", data: dict[str, Any] | None = None, **metadata: Any) -> RawObject:
    """Return a ConfigMap as the API server returns it."""
    found = {"name": name, "namespace": "ns", "creationTimestamp": "2025-01-01T00:00:00Z", **SERVER_SET, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": found, "data": data or {}}


def secret(password: str, **metadata: Any) -> RawObject:
    """Return a Secret; the password is in base64."""
    found = config_map("login", {"password": password}, **metadata)
    return found | {"kind": "Secret", "type": "Opaque"}


def change(before: RawObject | None, after: RawObject | None, task: TaskName = TASK, **values: Any) -> ObjectChange:
    """Return the change of an object."""
    obj = after or before or {}
    return ObjectChange(GVK.of_object(obj), ObjectKey.of_object(obj), before, after, (task,), **values)


def write(method: str, target: str, body: object = None, task: TaskName = TASK, status: int = 200) -> PlannedWrite:
    """Return a write with a body in JSON."""
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return PlannedWrite(task, method, target, content_type, json.dumps(body).encode(), status)


def object_plan(*changes: ObjectChange, name: str = "one", **values: Any) -> ObjectPlan:
    """Return the plan of a Foo."""
    times = {"started": STARTED, "ended": ENDED}
    return ObjectPlan(FOO, ObjectKey("ns", name), changes, **(times | values))
