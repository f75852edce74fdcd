"""The changes in a plan and how they are displayed: without noise, without secrets, equal in every plan."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from rolecall.kube.references import RawObject
from rolecall.runner.record.timeline import diff_lines
from rolecall.workbench.comparison.reports import ExitCode
from rolecall.workbench.plan.model import ObjectChange, Plan
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


def after(*changes: ObjectChange, **values: Any) -> RawObject:
    return shown(*changes, **values).after or {}


def diff(*changes: ObjectChange, **values: Any) -> list[str]:
    found = shown(*changes, **values)
    return diff_lines(found.before, found.after)


@pytest.mark.parametrize(
    "noise",
    [
        {"resourceVersion": "8"},
        {"uid": "u-2"},
        {"generation": 3},
        {"managedFields": [{"manager": "other"}]},
        {"creationTimestamp": "2026-01-01T00:00:00Z"},
        {"selfLink": "/y"},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        {"annotations": {"deployment.kubernetes.io/revision": "2"}},
    ],
    ids="/".join,
)
def test_fields_of_the_api_server_are_no_change(noise: dict[str, Any]) -> None:
    found = findings(change(config_map(), config_map(**noise)))
    assert (found.changes, found.exit_code) == ((), ExitCode.SAME)


def test_other_annotations_are_a_change() -> None:
    before = config_map(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "a"})
    assert diff(change(before, config_map(annotations={"note": "b"})))[-2:] == ["-    note: a", "+    note: b"]


def test_status_is_no_change_unless_a_run_wrote_it() -> None:
    old, new = (config_map() | {"status": {"ready": ready}} for ready in (1, 2))
    assert findings(change(old, new)).changes == ()
    assert diff(change(old, new, writes_status=True)) == [" status:", "-  ready: 1", "+  ready: 2"]


@pytest.mark.parametrize(
    ("old", "new", "action"),
    [
        (None, config_map(), Action.CREATE),
        (config_map(), config_map(data={"a": "b"}), Action.CHANGE),
        (config_map(), None, Action.DELETE),
        (config_map(), config_map(deletionTimestamp="2026-01-10T12:00:01Z"), Action.DELETE),
    ],
)
def test_action_follows_from_existence_before_and_after(
    old: RawObject | None, new: RawObject | None, action: Action
) -> None:
    assert shown(change(old, new)).action == action


def test_object_starts_with_its_identity() -> None:
    turned = dict(reversed(config_map(data={"a": "b"}).items()))
    assert list(after(change(None, turned))) == ["apiVersion", "kind", "metadata", "data"]


def test_object_created_and_deleted_again_is_no_change() -> None:
    assert findings(replace(change(None, config_map()), after=None)).changes == ()


def test_secret_shows_sizes_instead_of_values() -> None:
    found = after(change(None, secret(base64_of(PHRASE)) | {"stringData": {"other": "123456789"}}))
    assert found["data"] == {"password": "(sensitive, 13 bytes)"}
    assert found["stringData"] == {"other": "(sensitive, 9 bytes)"}
    assert found["metadata"]["name"] == "login"


def test_changed_secret_value_is_marked() -> None:
    old, new = (secret(base64_of(text)) for text in (PHRASE, PHRASE[::-1]))
    assert diff(change(old, new)) == [
        " data:",
        "-  password: (sensitive, 13 bytes)",
        "+  password: (sensitive, 13 bytes, changed)",
    ]
    old, new = config_map(data={"copy": "old-secret"}), config_map(data={"copy": "new-secret"})
    lines = diff(change(old, new), secrets=("old-secret", "new-secret"))
    assert lines[1:] == ["-  copy: (sensitive)", "+  copy: (sensitive, changed)"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PHRASE, "(sensitive)"),
        (f"postgres://u:{PHRASE}@db", "postgres://u:(sensitive)@db"),
        (base64_of(PHRASE), "(sensitive)"),
    ],
)
def test_copied_secret_value_is_hidden(text: str, expected: str) -> None:
    copied = change(None, config_map(data={"copy": text}))
    found = findings(change(None, secret(base64_of(PHRASE))), copied).changes[1].after or {}
    assert found["data"]["copy"] == expected
    assert after(copied, secrets=(PHRASE,))["data"]["copy"] == expected


def test_secret_value_of_a_write_is_hidden_in_a_failure() -> None:
    patch = write("PATCH", "/api/v1/namespaces/ns/secrets/login", {"stringData": {"password": PHRASE}})
    found = findings(writes=(patch,), failure=f"cannot log in with {PHRASE}")
    assert (found.failure, found.exit_code) == ("cannot log in with (sensitive)", ExitCode.FAILED)


def test_hidden_task_shows_only_the_identity_of_an_object() -> None:
    found = after(change(None, config_map(data={"key": "value"}, labels={"app": "web"}), HIDDEN))
    assert found["data"] == {"key": "(sensitive)"}
    assert found["metadata"] == {"name": "settings", "namespace": "ns", "labels": {"app": "web"}}


def owners(name: str, uid: str) -> list[dict[str, str]]:
    return [{"kind": "ConfigMap", "name": name, "uid": uid}]


def test_generated_names_and_uids_are_equal_in_every_plan() -> None:
    one = config_map("web-x7k2p", generateName="web-")
    two = config_map("web-zzzzz", generateName="web-", uid="u-9")
    refers = config_map("refers", {"to": "web-zzzzz.ns.svc and web-x7k2p"}, ownerReferences=owners("web-x7k2p", "u-1"))
    plan = Plan((object_plan(change(None, one), change(None, two)), object_plan(change(None, refers))))
    first, second = findings_of(plan)
    assert [str(each.key) for each in first.changes] == ["ns/web-<generated 1>", "ns/web-<generated 2>"]
    found = second.changes[0].after or {}
    assert found["data"]["to"] == "web-<generated 2>.ns.svc and web-<generated 1>"
    assert found["metadata"]["ownerReferences"] == [{"kind": "ConfigMap", "name": "web-<generated 1>"}]


def test_another_owner_with_the_same_name_is_a_change() -> None:
    old, new = (config_map(ownerReferences=owners("a", uid)) for uid in ("u-5", "u-6"))
    assert diff(change(old, new))[-2:] == ["-    uid: u-5", "+    uid: u-6"]
    assert findings(change(old, old)).changes == ()


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
def test_time_during_the_run_is_replaced(time: str, expected: str) -> None:
    old = config_map(data={"time": "2026-01-09T00:00:00Z"})
    found = shown(change(old, config_map(data={"time": time})))
    assert (found.before or {})["data"]["time"] == "2026-01-09T00:00:00Z"
    assert (found.after or {})["data"]["time"] == expected


def condition(**values: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Running", "status": "True", **values}], "observedGeneration": 1}


def test_status_with_other_times_and_counts_is_no_change() -> None:
    before = condition(lastTransitionTime="2025-01-01T00:00:00Z", ansibleResult={"ok": 1})
    assert findings(status_before=before, status_after=condition(ansibleResult={"ok": 2})).status is None


def test_status_with_another_condition_is_a_change() -> None:
    found = findings(status_before=condition(), status_after=condition(status="False"))
    assert found.exit_code == ExitCode.DIFFERENT
    assert found.status
    assert diff_lines(*found.status)[-2:] == ["-  status: 'True'", "+  status: 'False'"]


def test_end_of_a_run_in_the_cluster_is_no_change() -> None:
    """The operator marks runs of new and edited objects, and a plan may read the status during such a run."""
    running = {"type": "Running", "status": "True", "reason": "Running", "message": "Running reconciliation"}
    unknown = {"type": "Ready", "status": "Unknown", "reason": "RunInProgress", "message": "The run is in progress"}
    ended = [
        running | {"reason": "Successful", "message": "Awaiting next reconciliation"},
        {"type": "Successful", "status": "True", "reason": "Successful", "message": "Last reconciliation succeeded"},
        unknown | {"status": "True", "reason": "RunSucceeded", "message": "The last run succeeded"},
    ]
    before = {"conditions": [running, unknown], "observedGeneration": 1, "url": "a"}
    after = {"conditions": ended, "observedGeneration": 2, "url": "a"}
    assert findings(status_before=before, status_after=after).status is None

    changed = findings(status_before=before, status_after=after | {"url": "b"}).status
    assert changed is not None
    assert diff_lines(*changed) == ["-url: a", "+url: b"]


def test_success_after_a_failure_is_a_change_even_during_a_run() -> None:
    running = {"type": "Running", "status": "True", "reason": "Running"}
    failed = {"type": "Failure", "status": "True", "reason": "Failed", "message": "no"}
    after = {"conditions": [running | {"reason": "Successful"}, failed | {"status": "False", "reason": "Successful"}]}
    assert findings(status_before={"conditions": [running, failed]}, status_after=after).status is not None


def test_status_of_the_primary_is_shown_once() -> None:
    identity = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "one", "namespace": "ns"}}
    old, new = {"a": 1}, {"a": 2}
    written = change({**identity, "status": old}, {**identity, "status": new}, writes_status=True)
    found = findings(written, status_before=old, status_after=new)
    assert (found.changes, found.status) == ((), (old, new))


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
def test_result_of_an_object_depends_on_its_runs(values: dict[str, Any], expected: ExitCode) -> None:
    assert findings(**values).exit_code == expected
