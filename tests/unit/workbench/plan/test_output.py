"""A plan as text and as a JSON document."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.comparison.reports import Line, TaskName
from rolecall.workbench.plan.model import ControllerChange, DefinitionChanges, ObjectPlan, Plan
from rolecall.workbench.plan.output import document_of, lines_of
from rolecall.workbench.plan.shown_changes import findings_of
from tests.static.repository import ROOT
from tests.unit.workbench.plan.plans import HIDDEN, TASK, change, config_map, object_plan, secret, write

SECRETS = "/api/v1/namespaces/ns/secrets"
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
UNCHANGED = object_plan(change(config_map(), config_map()), requeue_after_seconds=60.0)
TOTAL = "1 object planned, 1 unchanged; 0 to create, 0 to change, 0 to delete"


def lines(*plans: ObjectPlan, options: dict[str, bool] | None = None, **fields: Any) -> list[Line]:
    plan = Plan(plans, **fields)
    return list(lines_of(plan, findings_of(plan), **(options or {})))


def rendered(*plans: ObjectPlan, options: dict[str, bool] | None = None, **fields: Any) -> list[str]:
    return [line.text for line in lines(*plans, options=options, **fields)]


def document(*plans: ObjectPlan, **fields: Any) -> Any:
    plan = Plan(plans, **fields)
    return json.loads(json.dumps(document_of(plan, findings_of(plan))))


def test_each_change_is_shown_with_its_tasks() -> None:
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
    found = lines(one)
    assert [line.text for line in found] == [
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
    styles = {line.text.strip(): line.style for line in found}
    assert (styles["-  a: b"], styles["+  a: c"], styles["data:"]) == ("red", "green", "")


def test_unchanged_object_takes_one_line_or_is_only_counted() -> None:
    assert rendered(UNCHANGED) == ["Foo ns/one: unchanged", TOTAL]
    assert rendered(object_plan(withheld=(TASK,)))[0] == "Foo ns/one: unchanged (1 task not run)"
    assert rendered(UNCHANGED, options={"lists_unchanged": False}) == [TOTAL]
    details = ["Foo ns/one: unchanged", "  runs again in 1m", "", TOTAL]
    assert rendered(UNCHANGED, options={"lists_unchanged": False, "is_verbose": True}) == details


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"failure": "no\nway"}, "  fails: no"),
        ({"failure": "no\nway"}, "    way"),
        ({"failure": "no"}, "Foo ns/one: would fail"),
        ({"stopped_at": "foo : Ask: it runs a command"}, "  complete up to task foo : Ask: it runs a command"),
        ({"failure": "x", "has_settled": False, "rounds": 10}, "  did not settle after 10 rounds"),
        ({"failure": "x", "withheld": (TaskName("foo : Call"),)}, "  not run: foo : Call"),
        ({"failure": "x", "withheld": (TaskName("A", f"{Path.cwd()}/roles/a:3"),)}, "  not run: A (roles/a:3)"),
        ({"failure": "x", "assumptions": ("new pods become ready",)}, "  assumed: new pods become ready"),
        ({"failure": "with the p4ssword", "secrets": ("p4ssword",)}, "  fails: with the (sensitive)"),
        ({"failure": "bell \a and \x1b[31m"}, "  fails: bell \\x07 and \\x1b[31m"),
    ],
)
def test_end_of_the_runs_is_shown(values: dict[str, Any], line: str) -> None:
    assert line in rendered(object_plan(**values))


def test_incomplete_plan_hides_the_end_of_its_runs() -> None:
    plan = object_plan(stopped_at="Ask: no", failure="made up", status_after={"a": 1}, has_settled=False)
    assert rendered(plan) == [
        "Foo ns/one: the plan is incomplete",
        "  complete up to task Ask: no",
        "",
        "1 object planned, 0 unchanged, 1 incomplete; 0 to create, 0 to change, 0 to delete",
    ]


def test_total_counts_objects_by_result() -> None:
    shared = object_plan(change(None, config_map("shared")))
    plans = (object_plan(failure="no"), object_plan(stopped_at="x"), UNCHANGED, shared, shared)
    total = "5 objects planned, 1 unchanged, 1 would fail, 1 incomplete; 1 to create, 0 to change, 0 to delete"
    assert rendered(*plans)[-1] == total


REASON = "Task 'Limit': Validation of arguments failed: quota.storage"


def failing(name: str, **values: Any) -> ObjectPlan:
    return object_plan(change(None, config_map(f"{name}-made")), name=name, failure=REASON, **values)


def test_objects_that_fail_for_the_same_reason_are_shown_once() -> None:
    names = ("a", "b", "c", "d", "e", "f", "g")
    found = rendered(*map(failing, names), object_plan(name="h", failure="another"))
    assert found[0] == f"7 of 8 would fail: {REASON} (Foo ns/a, ns/b, ns/c, ns/d, ns/e, and 2 more)"
    assert found[1:3] == ["  Foo ns/a, for example:", "  + ConfigMap ns/a-made"]
    assert "Foo ns/h: would fail" in found
    assert sum(REASON in line for line in found) == 1, found
    assert found[-1].startswith("8 objects planned, 0 unchanged, 8 would fail; 7 to create")


def test_reason_of_several_lines_is_one_line_for_several_objects() -> None:
    one, two = (object_plan(name=name, failure=f"{name} has\nno \x1b way") for name in ("one", "two"))
    assert rendered(one, two)[:2] == [
        "2 of 2 would fail: one has no \\x1b way (Foo ns/one, ns/two)",
        "",
    ]
    long = "no\n" + 400 * "x"
    found = rendered(*(object_plan(name=name, failure=long) for name in ("one", "two")))
    assert found[0] == f"2 of 2 would fail: no {297 * 'x'}… (Foo ns/one, ns/two)"
    assert found[2:4] == ["  fails: no", f"    {400 * 'x'}"]


def test_equal_changes_are_shown_once_whatever_the_names_of_their_objects() -> None:
    plans = [
        object_plan(change(None, config_map(f"{name}-made", {"for": f"the {name}"})), name=name, status_after={"n": 1})
        for name in ("team-a", "team-b")
    ]
    other = object_plan(change(None, config_map("third-made", {"for": "somebody"})), name="third")
    found = rendered(*plans, other)
    assert found[:3] == [
        "2 of 3: 1 to create, status changes (Foo ns/team-a, ns/team-b)",
        "  Foo ns/team-a, for example:",
        "  + ConfigMap ns/team-a-made",
    ]
    assert "Foo ns/third: 1 to create" in found
    assert "Foo ns/team-b: 1 to create, status changes" in rendered(*plans, options={"is_verbose": True})
    assert [each["name"] for each in document(*plans)["objects"]] == ["team-a", "team-b"]


def test_each_unchanged_object_has_its_line() -> None:
    assert rendered(UNCHANGED, UNCHANGED)[:2] == ["Foo ns/one: unchanged"] * 2


def test_objects_that_pruning_deletes_are_counted() -> None:
    pruned = object_plan(obsolete=("ConfigMap ns/old: no longer named by the role, deleted after 1h",))
    found = rendered(pruned)
    assert found[0] == "Foo ns/one: 1 to delete"
    assert found[-1] == "1 object planned, 0 unchanged; 0 to create, 0 to change, 1 to delete"
    assert document(pruned)["counts"]["delete"] == 1


def test_objects_that_pruning_proposes_are_no_deletions() -> None:
    text = "ConfigMap ns/old: no longer named by the role, kept, because the mode is report"
    found = rendered(object_plan(proposed=(text,)))
    assert found[0] == "Foo ns/one: 1 to confirm"
    assert f"  ? {text}" in found
    assert found[-1] == "1 object planned, 0 unchanged; 0 to create, 0 to change, 0 to delete, 1 to confirm"
    made = document(object_plan(proposed=(text,)))
    assert (made["counts"]["delete"], made["objects"][0]["proposed"], made["result"]) == (0, [text], "different")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (DefinitionChanges(("Team", "Foo")), "Team, Foo; planned with the project's (--cluster-crds: the cluster's)"),
        (DefinitionChanges(("Team",), ("Quota",), uses_cluster=True), "Team, Quota (new); planned with the cluster's"),
    ],
)
def test_first_line_reports_different_definitions(changes: DefinitionChanges, line: str) -> None:
    assert rendered(UNCHANGED, definitions=changes)[0] == f"The project's CRDs differ from the cluster's: {line}"
    source = "cluster" if changes.uses_cluster else "project"
    found = document(UNCHANGED, definitions=changes)["definitions"]
    assert found == {"source": source, "different": list(changes.different), "new": list(changes.new)}


def test_object_that_the_new_definition_rejects_is_a_finding() -> None:
    rejected = object_plan(rejected="spec.size: Invalid value: 9")
    assert rendered(rejected)[:2] == [
        "Foo ns/one: rejected by the CRD",
        "  the project's CRD rejects the object as it is stored: spec.size: Invalid value: 9",
    ]
    assert document(rejected)["result"] == "different"


def test_assumptions_about_all_objects_follow_the_objects() -> None:
    assert rendered(object_plan(), assumptions=("pods become ready",))[1] == "Assumed: pods become ready"


def test_changes_of_controllers_follow_the_objects_if_requested() -> None:
    pod = GVK("", "v1", "Pod")
    created = ControllerChange(pod, ObjectKey("ns", "web-2-*"), is_deletion=False, count=3)
    deleted = ControllerChange(pod, ObjectKey("ns", "web-1-x7k"), is_deletion=True)
    assert rendered(object_plan(), controllers=(created, deleted))[1:-1] == [
        "Kubernetes' controllers then:",
        "  + Pod ns/web-2-* (3 of them)",
        "  - Pod ns/web-1-x7k",
        "",
    ]
    assert rendered(object_plan(), controllers=())[1] == "Kubernetes' controllers then create and delete nothing"
    identity = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "web-2-*"}
    assert document(object_plan(), controllers=(created,))["controllers"] == [
        {"action": "create", **identity, "count": 3}
    ]
    assert "controllers" not in document(object_plan())


def test_no_line_has_a_secret() -> None:
    found = rendered(object_plan(change(None, secret("aHVudGVyMg=="))))
    assert "      +  password: (sensitive, 7 bytes)" in found
    assert not [line for line in found if "aHVudGVyMg" in line or "hunter2" in line]


def test_no_body_of_a_write_has_a_secret() -> None:
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
    first, second, third, fourth, fifth = (each["body"] for each in document(plan)["objects"][0]["writes"])
    assert first["data"] == {"password": "(sensitive)"}
    assert second == {"stringData": {"pin": "(sensitive)"}}
    assert third["data"] == {"copy": "user:(sensitive)"}
    assert (fourth["metadata"]["name"], fourth["data"]) == ("private", {"short": "(sensitive)"})
    assert fifth is None
    assert "hunter2" not in json.dumps(document(plan))


FULL = object_plan(
    change(None, config_map("made")),
    writes=(write("POST", CONFIG_MAPS, config_map("made")),),
    status_after={"ready": 1},
    withheld=(TASK,),
)


def test_document_has_the_content_of_the_text() -> None:
    found = document(FULL, object_plan(name="two"))
    assert (found["format"], found["result"]) == (1, "different")
    counts = {"objects": 2, "same": 1, "different": 1, "incomplete": 0, "failed": 0}
    assert found["counts"] == counts | {"create": 1, "change": 0, "delete": 0}
    first, second = found["objects"]
    task = {"name": TASK.name, "place": TASK.location}
    [made] = first["changes"]
    assert (made["action"], made["kind"], made["name"], made["tasks"]) == ("create", "ConfigMap", "made", [task])
    assert made["before"] is None
    assert made["after"]["metadata"] == {"name": "made", "namespace": "ns"}
    assert first["status"] == {"before": {}, "after": {"ready": 1}, "diff": ["+ready: 1"]}
    assert first["withheld"] == [task]
    assert (second["result"], second["status"]) == ("same", None)


def test_failure_takes_precedence_over_other_results() -> None:
    assert document(FULL, object_plan(failure="no"))["result"] == "failed"
    assert document(FULL, object_plan(stopped_at="x"))["result"] == "incomplete"


def test_reference_describes_each_field() -> None:
    page = (ROOT / "docs/reference/plan-format.md").read_text()
    described = set(re.findall(r"`(\w+)`", page))
    assert set(_fields(document(FULL))) <= described


def _fields(value: Any) -> Any:
    """Yield the names of all fields, except those of Kubernetes objects."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in {"before", "after", "body"}:
                yield from _fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner)
