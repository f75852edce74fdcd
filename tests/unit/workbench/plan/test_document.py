"""A plan for programs."""

import base64
import json
import re
from typing import Any

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.plan.differences import findings_of
from rolecall.workbench.plan.output import document_of
from rolecall.workbench.plan.results import ControllerChange, ObjectPlan, Plan
from tests.static.repository import ROOT
from tests.unit.workbench.plan.plans import HIDDEN, TASK, change, config_map, object_plan, secret, write

SECRETS = "/api/v1/namespaces/ns/secrets"
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"


def documented(*plans: ObjectPlan, **fields: Any) -> Any:
    plan = Plan(plans, **fields)
    return json.loads(json.dumps(document_of(plan, findings_of(plan))))


def full_plan() -> ObjectPlan:
    post = write("POST", CONFIG_MAPS, config_map("made"))
    return object_plan(
        change(None, config_map("made")),
        writes=(post,),
        status_after={"ready": 1},
        withheld=(TASK,),
    )


def test_what_controllers_do_is_in_the_document_if_it_was_asked() -> None:
    pod = ControllerChange(GVK("", "v1", "Pod"), ObjectKey("ns", "web-*"), is_deletion=False, count=2)
    identity = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "web-*"}
    assert documented(object_plan(), controllers=(pod,))["controllers"] == [
        {"action": "create", **identity, "count": 2}
    ]
    assert "controllers" not in documented(object_plan())


def test_a_document_has_what_the_text_says() -> None:
    found = documented(full_plan(), object_plan(name="two"))
    assert (found["format"], found["result"]) == (1, "different")
    assert found["counts"] == {
        "objects": 2,
        "same": 1,
        "different": 1,
        "incomplete": 0,
        "failed": 0,
        "create": 1,
        "change": 0,
        "delete": 0,
    }
    first, second = found["objects"]
    task = {"name": TASK.name, "place": TASK.place}
    [made] = first["changes"]
    assert (made["action"], made["kind"], made["name"], made["tasks"]) == ("create", "ConfigMap", "made", [task])
    assert made["before"] is None
    assert made["after"]["metadata"] == {"name": "made", "namespace": "ns"}
    assert first["status"] == {"before": {}, "after": {"ready": 1}, "diff": ["+ready: 1"]}
    assert first["withheld"] == [task]
    assert (second["result"], second["status"]) == ("same", None)


def test_a_failure_is_not_hidden_by_what_other_objects_do() -> None:
    assert documented(full_plan(), object_plan(failure="no"))["result"] == "failed"
    assert documented(full_plan(), object_plan(stopped_at="x"))["result"] == "incomplete"


def test_no_secret_is_in_the_body_of_a_write() -> None:
    encoded = base64.b64encode(b"hunter2").decode()
    plan = object_plan(
        writes=(
            write("POST", SECRETS, secret(encoded)),
            write("PATCH", f"{SECRETS}/login", {"stringData": {"pin": "12"}}),
            write("POST", CONFIG_MAPS, config_map(data={"copy": "user:hunter2"})),
            write("POST", CONFIG_MAPS, config_map("private", {"short": "ab"}), HIDDEN),
            write("DELETE", f"{CONFIG_MAPS}/hunter2"),
        )
    )
    first, second, third, fourth, fifth = (each["body"] for each in documented(plan)["objects"][0]["writes"])
    assert first["data"] == {"password": "(sensitive)"}
    assert second == {"stringData": {"pin": "(sensitive)"}}
    assert third["data"] == {"copy": "user:(sensitive)"}
    assert (fourth["metadata"]["name"], fourth["data"]) == ("private", {"short": "(sensitive)"})
    assert fifth is None
    assert "hunter2" not in json.dumps(documented(plan))


def test_the_reference_describes_each_field() -> None:
    page = (ROOT / "docs/reference/plan-format.md").read_text()
    described = set(re.findall(r"`(\w+)`", page))
    document = documented(full_plan())
    assert set(_fields(document)) <= described


def _fields(value: Any) -> Any:
    """Yield the names of all fields, apart from those of the objects in Kubernetes."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in {"before", "after", "body"}:
                yield from _fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner)
