"""How a plan reads.

A plan for programs.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.plan.model import ControllerChange, ObjectPlan, Plan, TaskName
from rolecall.workbench.plan.output import Rendering, document_of
from rolecall.workbench.plan.shown_changes import findings_of
from tests.static.repository import ROOT
from tests.unit.workbench.plan.plans import HIDDEN, TASK, change, config_map, object_plan, secret, write


def rendered(*plans: ObjectPlan, **options: Any) -> list[str]:
    assumptions, controllers = options.pop("assumptions", ()), options.pop("controllers", None)
    plan = Plan(plans, assumptions=assumptions, controllers=controllers)
    return [line.text for line in Rendering(plan, findings_of(plan), **options).lines()]


def test_what_holds_for_all_objects_stands_at_the_end() -> None:
    lines = rendered(object_plan(), assumptions=("pods become ready",))
    assert lines[1] == "Assumed: pods become ready"


def test_what_controllers_do_stands_after_the_objects_if_it_was_asked() -> None:
    pods, gone = GVK("", "v1", "Pod"), ObjectKey("ns", "web-1-x7k")
    found = (
        ControllerChange(pods, ObjectKey("ns", "web-2-*"), is_deletion=False, count=3),
        ControllerChange(pods, gone, is_deletion=True),
    )
    assert rendered(object_plan(), controllers=found)[1:-1] == [
        "Kubernetes' controllers then:",
        "  + Pod ns/web-2-* (3 of them)",
        "  - Pod ns/web-1-x7k",
        "",
    ]
    assert rendered(object_plan(), controllers=())[1] == "Kubernetes' controllers then make and delete nothing"


def test_how_an_incomplete_plan_ends_is_not_told_of_the_runs() -> None:
    lines = rendered(object_plan(stopped_at="Ask: no", failure="made up", status_after={"a": 1}, has_settled=False))
    assert lines == [
        "Foo ns/one: the plan is incomplete",
        "  complete up to task Ask: no",
        "",
        "1 object planned, 0 unchanged, 1 incomplete; 0 to create, 0 to change, 0 to delete",
    ]


def test_each_change_is_shown_with_the_tasks_that_made_it() -> None:
    one = object_plan(
        change(None, config_map("made", {"a": "b"})),
        change(config_map("kept", {"a": "b"}), config_map("kept", {"a": "c"})),
        change(config_map("gone"), None),
        status_before={"ready": 1},
        status_after={"ready": 2},
        requeue_after_seconds=300.0,
        rounds=3,
    )
    by = "      by foo : Write the settings (roles/foo/tasks/main.yml:3)"
    assert rendered(one) == [
        "Foo ns/one: 1 to create, 1 to change, 1 to delete, status changes",
        "  + ConfigMap ns/made",
        by,
        "      +apiVersion: v1",
        "      +kind: ConfigMap",
        "      +metadata:",
        "      +  name: made",
        "      +  namespace: ns",
        "      +data:",
        "      +  a: b",
        "  ~ ConfigMap ns/kept",
        by,
        "       data:",
        "      -  a: b",
        "      +  a: c",
        "  - ConfigMap ns/gone",
        by,
        "  ~ status",
        "      -ready: 1",
        "      +ready: 2",
        "  settled after 3 rounds",
        "  runs again in 5m",
        "",
        "1 object planned, 0 unchanged; 1 to create, 1 to change, 1 to delete",
    ]


UNCHANGED = object_plan(change(config_map(), config_map()), requeue_after_seconds=60.0)
TOTAL = "1 object planned, 1 unchanged; 0 to create, 0 to change, 0 to delete"


def test_what_stays_as_it_is_takes_one_line() -> None:
    assert rendered(UNCHANGED) == ["Foo ns/one: unchanged", TOTAL]


def test_what_stays_as_it_is_can_be_counted_only_or_shown_with_all_that_is_known() -> None:
    assert rendered(UNCHANGED, lists_unchanged=False) == [TOTAL]
    details = ["Foo ns/one: unchanged", "  runs again in 1m", "", TOTAL]
    assert rendered(UNCHANGED, lists_unchanged=False, is_verbose=True) == details


def test_withheld_tasks_of_an_unchanged_object_are_not_forgotten() -> None:
    assert rendered(object_plan(withheld=(TASK,)))[0] == "Foo ns/one: unchanged (1 task not run)"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"failure": "no\nway"}, "  fails: no"),
        (
            {"stopped_at": "foo : Ask: it runs a command"},
            "  complete up to task foo : Ask: it runs a command",
        ),
        ({"failure": "x", "has_settled": False, "rounds": 10}, "  did not settle after 10 rounds"),
        ({"failure": "x", "withheld": (TaskName("foo : Call"),)}, "  not run: foo : Call"),
        ({"failure": "x", "withheld": (TaskName("A", f"{Path.cwd()}/roles/a:3"),)}, "  not run: A (roles/a:3)"),
        ({"failure": "x", "assumptions": ("new pods become ready",)}, "  assumed: new pods become ready"),
        ({"failure": "with the p4ssword", "secrets": ("p4ssword",)}, "  fails: with the (sensitive)"),
        ({"failure": "bell \a and \x1b[31m"}, "  fails: bell \\x07 and \\x1b[31m"),
    ],
)
def test_how_the_runs_end_is_told(values: dict[str, Any], line: str) -> None:
    assert line in rendered(object_plan(**values))


@pytest.mark.parametrize(
    ("values", "head"),
    [({"failure": "no"}, "Foo ns/one: would fail"), ({"stopped_at": "x"}, "Foo ns/one: the plan is incomplete")],
)
def test_the_head_says_what_is_wrong(values: dict[str, Any], head: str) -> None:
    assert rendered(object_plan(change(None, config_map()), **values))[0] == head


def test_the_total_counts_objects_by_what_happens_to_them() -> None:
    plans = (
        object_plan(failure="no"),
        object_plan(stopped_at="x"),
        UNCHANGED,
        object_plan(change(None, config_map("shared"))),
        object_plan(change(None, config_map("shared"))),
    )
    total = "5 objects planned, 1 unchanged, 1 would fail, 1 incomplete; 1 to create, 0 to change, 0 to delete"
    assert rendered(*plans)[-1] == total


def test_colours_tell_what_is_added_and_removed() -> None:
    before, after = config_map(data={"a": "b"}), config_map(data={"a": "c"})
    plan = Plan((object_plan(change(before, after)),))
    lines = Rendering(plan, findings_of(plan)).lines()
    styles = {line.text.strip(): line.style for line in lines}
    assert (styles["-  a: b"], styles["+  a: c"], styles["data:"]) == ("red", "green", "")


def test_no_secret_is_in_any_line() -> None:
    lines = rendered(object_plan(change(None, secret("aHVudGVyMg=="))))
    assert "      +  password: (sensitive, 7 bytes)" in lines
    assert not [line for line in lines if "aHVudGVyMg" in line or "hunter2" in line]


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
