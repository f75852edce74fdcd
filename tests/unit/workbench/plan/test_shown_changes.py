"""What counts as a change, and what of it is shown."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from rolecall.kube.references import RawObject
from rolecall.workbench.plan.model import ExitCode, ObjectChange, ObjectPlan, Plan
from rolecall.workbench.plan.shown_changes import Action, ChangedObject, Findings, findings_of
from tests.unit.workbench.plan.plans import HIDDEN, change, config_map, object_plan, secret, write

PHRASE = "correct horse"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def findings(*changes: ObjectChange, **values: Any) -> Findings:
    [found] = findings_of(Plan((object_plan(*changes, **values),)))
    return found


def shown(*changes: ObjectChange, **values: Any) -> ChangedObject:
    [found] = findings(*changes, **values).changes
    return found


def diff(*changes: ObjectChange, **values: Any) -> list[str]:
    return shown(*changes, **values).difference.lines()


NOISE: dict[str, dict[str, Any]] = {
    "resourceVersion": {"resourceVersion": "8"},
    "uid": {"uid": "u-2"},
    "generation": {"generation": 3},
    "managedFields": {"managedFields": [{"manager": "other"}]},
    "creationTimestamp": {"creationTimestamp": "2026-01-01T00:00:00Z"},
    "selfLink": {"selfLink": "/y"},
    "what kubectl applied": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
    "the revision of a Deployment": {"annotations": {"deployment.kubernetes.io/revision": "2"}},
}


@pytest.mark.parametrize("name", NOISE)
def test_what_the_api_server_sets_is_no_change(name: str) -> None:
    found = findings(change(config_map(), config_map(**NOISE[name])))
    assert (found.changes, found.result) == ((), ExitCode.SAME)


def test_other_annotations_are_a_change() -> None:
    before = config_map(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "a"})
    assert diff(change(before, config_map(annotations={"note": "b"})))[-2:] == ["-    note: a", "+    note: b"]


def test_a_status_is_the_work_of_controllers_unless_a_run_wrote_it() -> None:
    before, after = (config_map() | {"status": {"ready": ready}} for ready in (1, 2))
    assert findings(change(before, after)).changes == ()
    assert diff(change(before, after, writes_status=True)) == [" status:", "-  ready: 1", "+  ready: 2"]


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        (None, config_map(), Action.CREATE),
        (config_map(), config_map(data={"a": "b"}), Action.CHANGE),
        (config_map(), None, Action.DELETE),
        (config_map(), config_map(deletionTimestamp="2026-01-10T12:00:01Z"), Action.DELETE),
    ],
)
def test_an_action_is_told_by_what_is_there_before_and_after(
    before: RawObject | None, after: RawObject | None, action: Action
) -> None:
    assert shown(change(before, after)).action == action


def test_what_an_object_is_stands_first() -> None:
    made = config_map(data={"a": "b"})
    turned = dict(reversed(made.items()))
    assert list(shown(change(None, turned)).difference.after or {}) == ["apiVersion", "kind", "metadata", "data"]


def test_what_was_created_and_deleted_again_is_no_change() -> None:
    made = change(None, config_map())
    assert findings(replace(made, after=None)).changes == ()


def test_values_of_secrets_are_never_shown() -> None:
    found = shown(change(None, secret(base64_of(PHRASE)) | {"stringData": {"other": "123456789"}}))
    after = found.difference.after or {}
    assert after["data"] == {"password": "(sensitive, 13 bytes)"}
    assert after["stringData"] == {"other": "(sensitive, 9 bytes)"}
    assert after["metadata"]["name"] == "login"


def test_a_secret_value_that_differs_is_a_change() -> None:
    before, after = (secret(base64_of(text)) for text in (PHRASE, PHRASE[::-1]))
    assert diff(change(before, after)) == [
        " data:",
        "-  password: (sensitive, 13 bytes)",
        "+  password: (sensitive, 13 bytes, changed)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PHRASE, "(sensitive)"),
        (f"postgres://u:{PHRASE}@db", "postgres://u:(sensitive)@db"),
        (base64_of(PHRASE), "(sensitive)"),
    ],
)
def test_a_secret_value_is_hidden_wherever_it_was_copied(text: str, expected: str) -> None:
    from_secret = change(None, secret(base64_of(PHRASE)))
    copied = change(None, config_map(data={"copy": text}))
    found = findings(from_secret, copied).changes[1].difference.after or {}
    assert found["data"]["copy"] == expected
    found = shown(copied, secrets=(PHRASE,)).difference.after or {}
    assert found["data"]["copy"] == expected


def test_a_secret_value_of_a_write_is_hidden_in_what_the_run_says() -> None:
    target = "/api/v1/namespaces/ns/secrets/login"
    patch = write("PATCH", target, {"stringData": {"password": PHRASE}})
    found = findings(writes=(patch,), failure=f"cannot log in with {PHRASE}")
    assert found.texts.shown(found.plan.failure) == "cannot log in with (sensitive)"
    assert found.result == ExitCode.FAILED


def test_a_copied_secret_value_that_differs_is_shown_as_changed() -> None:
    before, after = config_map(data={"copy": "old-secret"}), config_map(data={"copy": "new-secret"})
    lines = diff(change(before, after), secrets=("old-secret", "new-secret"))
    assert lines[1:] == ["-  copy: (sensitive)", "+  copy: (sensitive, changed)"]


def test_what_a_hidden_task_writes_is_hidden_apart_from_what_it_is() -> None:
    after = config_map(data={"key": "value"}, labels={"app": "web"})
    found = shown(change(None, after, HIDDEN)).difference.after or {}
    assert found["data"] == {"key": "(sensitive)"}
    assert found["metadata"] == {"name": "settings", "namespace": "ns", "labels": {"app": "web"}}


def test_generated_names_are_the_same_in_every_plan() -> None:
    made = config_map("web-x7k2p", generateName="web-")
    other = config_map("web-zzzzz", generateName="web-", uid="u-9")
    refers = config_map("refers", {"to": "web-zzzzz.ns.svc and web-x7k2p"}, ownerReferences=owners("web-x7k2p", "u-1"))
    plan = Plan((object_plan(change(None, made), change(None, other)), object_plan(change(None, refers))))
    first, second = findings_of(plan)
    assert [str(each.key) for each in first.changes] == ["ns/web-<generated 1>", "ns/web-<generated 2>"]
    after = second.changes[0].difference.after or {}
    assert after["data"]["to"] == "web-<generated 2>.ns.svc and web-<generated 1>"
    assert after["metadata"]["ownerReferences"] == [{"kind": "ConfigMap", "name": "web-<generated 1>"}]


def owners(name: str, uid: str) -> list[dict[str, str]]:
    return [{"kind": "ConfigMap", "name": name, "uid": uid}]


def test_another_owner_of_the_same_name_is_a_change() -> None:
    before, after = (config_map(ownerReferences=owners("a", uid)) for uid in ("u-5", "u-6"))
    assert diff(change(before, after))[-2:] == ["-    uid: u-5", "+    uid: u-6"]
    assert findings(change(before, before)).changes == ()


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-01-10T12:00:02Z", "(time of the run)"),
        ("at 2026-01-10T13:00:01.5+01:00", "at (time of the run)"),
        ("2026-01-10 12:00:01.123456", "(time of the run)"),
        ("20260110T120001", "(time of the run)"),
        ("since 1768046402", "since (time of the run)"),
        ("2026-01-10T11:59:00Z", "2026-01-10T11:59:00Z"),
        ("1768040000", "1768040000"),
        ("2026-99-99T99:99:99Z", "2026-99-99T99:99:99Z"),
    ],
)
def test_a_time_of_the_run_is_shown_as_such(time: str, expected: str) -> None:
    before, after = config_map(data={"time": "2026-01-09T00:00:00Z"}), config_map(data={"time": time})
    found = shown(change(before, after)).difference
    assert (found.before or {})["data"]["time"] == "2026-01-09T00:00:00Z"
    assert (found.after or {})["data"]["time"] == expected


def statuses(before: dict[str, Any], after: dict[str, Any]) -> Any:
    return findings(status_before=before, status_after=after)


def condition(**values: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Running", "status": "True", **values}], "observedGeneration": 1}


def test_a_status_that_differs_only_in_times_and_counts_stays() -> None:
    before = condition(lastTransitionTime="2025-01-01T00:00:00Z", ansibleResult={"ok": 1})
    assert statuses(before, condition(ansibleResult={"ok": 2})).status is None


def test_a_status_that_says_something_else_is_a_difference() -> None:
    found = statuses(condition(), condition(status="False"))
    assert found.result == ExitCode.DIFFERENT
    assert found.status.lines()[-2:] == ["-  status: 'True'", "+  status: 'False'"]


def test_the_status_of_the_primary_is_shown_once() -> None:
    before, after = (
        {
            "apiVersion": "example.com/v1",
            "kind": "Foo",
            "metadata": {"name": "one", "namespace": "ns"},
            "status": status,
        }
        for status in ({"a": 1}, {"a": 2})
    )
    found = findings(
        change(before, after, writes_status=True), status_before=before["status"], status_after=after["status"]
    )
    assert found.changes == ()
    assert found.status
    assert found.status.lines() == ["-a: 1", "+a: 2"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ExitCode.SAME),
        ({"stopped_at": "task x"}, ExitCode.INCOMPLETE),
        ({"stopped_at": "task x", "failure": "no"}, ExitCode.INCOMPLETE),
        ({"failure": "no", "status_after": {"a": 1}}, ExitCode.FAILED),
        ({"status_after": {"a": 1}}, ExitCode.DIFFERENT),
    ],
)
def test_the_result_of_an_object_says_what_is_known_of_its_runs(values: dict[str, Any], expected: ExitCode) -> None:
    found: ObjectPlan = object_plan(**values)
    assert findings_of(Plan((found,)))[0].result == expected
