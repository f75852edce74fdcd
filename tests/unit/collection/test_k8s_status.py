import re
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rolecall.util.plugins.module_utils.status import merge_conditions, merge_status
from ansible_collections.rolecall.util.plugins.modules import k8s_status
from ansible_collections.rolecall.util.plugins.modules.k8s_status import StatusError

from tests.unit.collection.objects import Server

NOW, BEFORE = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"


def module(*, check_mode: bool = False, **parameters: Any) -> SimpleNamespace:
    defaults = {"status": None, "conditions": None, "replace": False, "replace_lists": False}
    where = {"api_version": "e.com/v1", "kind": "K", "name": "n", "namespace": "ns"}
    return SimpleNamespace(params={**where, **defaults, **parameters}, check_mode=check_mode)


def obj(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "namespace": "ns"}, **({"status": status} if status else {})}


def condition(status: str, since: str | None = BEFORE, **more: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, **({"lastTransitionTime": since} if since else {}), **more}


def wanted(old: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    status: dict[str, Any] = merge_status(old, module(**parameters).params, NOW)
    return status


@pytest.mark.parametrize(
    ("old", "options", "expected"),
    [
        ({"a": {"x": 1}, "b": 2}, {"status": {"a": {"y": 3}}}, {"a": {"x": 1, "y": 3}, "b": 2}),
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"status": {"a": None, "b": {"c": None}}}, {"b": {"d": 2}}),
        ({"b": 2}, {"status": {"a": None}}, {"b": 2}),
        ({"l": [1, 2]}, {"status": {"l": [2, 3]}}, {"l": [2, 3]}),
        ({"l": [1, 2]}, {"status": {"l": [1]}}, {"l": [1, 2]}),
        ({"l": [1, 2]}, {"status": {"l": [1]}, "replace_lists": True}, {"l": [1]}),
    ],
    ids=["added", "removed by null", "absent", "other list", "contained list", "contained list is replaced"],
)
def test_fields_are_merged_into_the_old_status(
    old: dict[str, Any], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert wanted(old, **options) == expected


def test_old_status_is_not_changed_in_place() -> None:
    old = {"a": {"x": 1}, "l": [1], "conditions": [condition("True")]}
    wanted(old, status={"a": {"x": 2}, "l": [2]}, conditions=[condition("False")])
    assert old == {"a": {"x": 1}, "l": [1], "conditions": [condition("True")]}


def test_new_condition_follows_the_others() -> None:
    other = {"type": "Other", "status": "True"}
    assert merge_conditions([other], [condition("True", None)], NOW) == [other, condition("True", NOW)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (condition("True"), condition("True", None, reason="R"), condition("True", BEFORE, reason="R")),
        (condition("True", message="m"), condition("False", None), condition("False", NOW)),
        (condition("True", message="m"), condition("True", NOW), condition("True", message="m")),
        (condition("True"), condition("False", "2025-01-01T00:00:00Z"), condition("False", "2025-01-01T00:00:00Z")),
    ],
    ids=["same status", "other status", "nothing new", "given time"],
)
def test_last_transition_time_changes_with_the_status(
    old: dict[str, str], new: dict[str, str], expected: dict[str, str]
) -> None:
    assert merge_conditions([old], [new], NOW) == [expected]


def test_conditions_in_status_are_merged_by_type() -> None:
    other = {"type": "Other", "status": "True"}
    status = wanted({"conditions": [other, condition("True")]}, status={"conditions": [condition("False", None)]})
    assert status["conditions"] == [other, condition("False", NOW)]


def test_conditions_that_replace_others_keep_their_times() -> None:
    old = {"a": 1, "conditions": [{"type": "Other", "status": "True"}, condition("True")]}
    assert wanted(old, conditions=[condition("True", None)], replace=True) == {"conditions": [condition("True")]}


# Roles compare the texts of the original.
@pytest.mark.parametrize(
    ("invalid", "error"),
    [
        ({"reason": "The ping failed"}, "Condition 'reason' must be a single, CamelCase word"),
        (
            {"lastTransitionTime": "26/03/2021 2:00PM"},
            "'lastTransitionTime' must be an RFC3339 compliant datetime string",
        ),
        ({"lastHeartbeatTime": "now"}, "'lastHeartbeatTime' must be an RFC3339 compliant datetime string"),
    ],
)
def test_invalid_condition_is_an_error_in_the_words_of_the_original(invalid: dict[str, str], error: str) -> None:
    given = condition("True") | invalid
    with pytest.raises(StatusError) as raised:
        k8s_status.write(module(conditions=[given]), Server(obj()))
    assert str(raised.value) == "The specified conditions failed to validate"
    assert raised.value.details == {"error": error, "condition": given}


@pytest.mark.parametrize("time", ["2021-03-26T14:00:00Z", "2021-03-26 14:00:00+01:00", "2021-03-26T14:00:00.123Z"])
def test_time_can_have_any_form_of_rfc_3339(time: str) -> None:
    assert wanted({}, conditions=[condition("True", time)])["conditions"] == [condition("True", time)]


def test_conditions_in_two_options_are_rejected() -> None:
    with pytest.raises(ValueError, match="conditions in both"):
        wanted({}, status={"conditions": [condition("True")]}, conditions=[condition("True")])


def test_kind_without_status_is_rejected() -> None:
    with pytest.raises(StatusError, match=r"Resource e\.com/v1\.Stateless does not support the status subresource"):
        k8s_status.write(module(status={"a": 1}, kind="Stateless"), Server(obj()))


def test_status_is_written() -> None:
    server = Server(obj(a=1))
    result = k8s_status.write(module(status={"b": 2}), server)
    assert result["changed"]
    assert server.objects["ns", "n"]["status"] == {"a": 1, "b": 2}


def test_unchanged_status_is_not_written() -> None:
    server = Server(obj(a=1), conflicts=1)
    assert k8s_status.write(module(status={"a": 1}), server)["changed"] is False


def test_status_is_replaced_if_requested() -> None:
    server = Server(obj(a=1))
    k8s_status.write(module(status={"b": 2}, replace=True), server)
    assert server.objects["ns", "n"]["status"] == {"b": 2}


def test_conditions_are_written_without_omitted_options() -> None:
    server = Server(obj())
    given = {"type": "Ready", "status": "True", "reason": None, "message": None, "lastTransitionTime": BEFORE}
    k8s_status.write(module(conditions=[given]), server)
    assert server.objects["ns", "n"]["status"] == {"conditions": [condition("True")]}


def test_check_mode_reports_the_change_and_writes_nothing() -> None:
    server = Server(obj(a=1))
    result = k8s_status.write(module(status={"a": 2}, check_mode=True), server)
    assert (result["changed"], result["result"]["status"]) == (True, {"a": 2})
    assert server.objects["ns", "n"]["status"] == {"a": 1}


def test_conflicting_write_is_retried() -> None:
    server = Server(obj(a=1), conflicts=k8s_status.ATTEMPTS - 1)
    assert k8s_status.write(module(status={"a": 2}), server)["changed"]
    assert server.objects["ns", "n"]["status"] == {"a": 2}


def test_conflicts_are_retried_a_limited_number_of_times() -> None:
    with pytest.raises(StatusError, match=r"Failed to replace status: 409 Reason: because") as raised:
        k8s_status.write(module(status={"a": 2}), Server(obj(a=1), conflicts=k8s_status.ATTEMPTS))
    assert raised.value.details["error"] == {"status": 409, "reason": "because", "body": None}


def test_missing_object_is_an_error_with_the_response() -> None:
    with pytest.raises(StatusError, match=r"^Failed to retrieve requested object$") as raised:
        k8s_status.write(module(status={"a": 2}), Server())
    assert raised.value.details["error"] == {"status": 404, "reason": "because", "body": None}


@pytest.mark.parametrize("name", ["n#x", "n?x", "../ns/n"])
def test_other_object_to_which_the_name_leads_in_a_url_is_not_written(name: str) -> None:
    server = Server(obj(a=1))
    server.objects["ns", name] = server.objects["ns", "n"]  # as the dynamic client finds it
    with pytest.raises(StatusError, match=f"Found 'n' instead of the requested object {re.escape(repr(name))}"):
        k8s_status.write(module(status={"a": 2}, name=name), server)
    assert server.objects["ns", "n"]["status"] == {"a": 1}


def test_missing_kind_is_an_error() -> None:
    with pytest.raises(StatusError, match=r"Failed to find exact match for e\.com/v1\.Missing by \[kind, name"):
        k8s_status.write(module(status={"a": 2}, kind="Missing"), Server())
