from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rolecall.util.plugins.module_utils.status import merge_conditions, merge_status
from ansible_collections.rolecall.util.plugins.modules import k8s_status
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

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


def test_fields_are_put_into_the_old_status() -> None:
    assert wanted({"a": {"x": 1}, "b": 2}, status={"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}, "b": 2}


def test_a_field_is_removed_by_null() -> None:
    assert wanted({"a": 1, "b": {"c": 1, "d": 2}}, status={"a": None, "b": {"c": None}}) == {"b": {"d": 2}}
    assert wanted({"b": 2}, status={"a": None}) == {"b": 2}


def test_a_list_takes_the_place_of_the_old_one() -> None:
    assert wanted({"l": [1, 2]}, status={"l": [2, 3]}) == {"l": [2, 3]}


@pytest.mark.parametrize(("replace_lists", "after"), [(False, [1, 2]), (True, [1])])
def test_a_list_that_the_old_one_holds_is_written_only_on_demand(*, replace_lists: bool, after: list[int]) -> None:
    assert wanted({"l": [1, 2]}, status={"l": [1]}, replace_lists=replace_lists) == {"l": after}


def test_the_old_status_is_not_changed_in_place() -> None:
    old = {"a": {"x": 1}, "l": [1], "conditions": [condition("True")]}
    wanted(old, status={"a": {"x": 2}, "l": [2]}, conditions=[condition("False")])
    assert old == {"a": {"x": 1}, "l": [1], "conditions": [condition("True")]}


def test_a_new_condition_stands_behind_the_others() -> None:
    other = {"type": "Other", "status": "True"}
    assert merge_conditions([other], [condition("True", None)], NOW) == [other, condition("True", NOW)]


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    assert merge_conditions([condition("True")], [condition("True", None, reason="R")], NOW) == [
        condition("True", BEFORE, reason="R")
    ]


def test_a_condition_that_changes_says_only_the_new_and_gets_the_time_of_the_change() -> None:
    assert merge_conditions([condition("True", message="m")], [condition("False", None)], NOW) == [
        condition("False", NOW)
    ]


def test_a_condition_that_says_nothing_new_stays_as_it_is() -> None:
    old = condition("True", message="m")
    assert merge_conditions([old], [condition("True", NOW)], NOW) == [old]


def test_a_time_that_is_given_with_a_change_counts() -> None:
    given = condition("False", "2025-01-01T00:00:00Z")
    assert merge_conditions([condition("True")], [given], NOW) == [given]


def test_conditions_within_the_status_are_merged_by_their_type_too() -> None:
    other = {"type": "Other", "status": "True"}
    status = wanted({"conditions": [other, condition("True")]}, status={"conditions": [condition("False", None)]})
    assert status["conditions"] == [other, condition("False", NOW)]


def test_conditions_that_replace_all_others_keep_their_times() -> None:
    old = {"a": 1, "conditions": [{"type": "Other", "status": "True"}, condition("True")]}
    assert wanted(old, conditions=[condition("True", None)], replace=True) == {"conditions": [condition("True")]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reason": "The ping failed"}, "expected one word in CamelCase as reason, found 'The ping failed'"),
        ({"lastTransitionTime": "26/03/2021 2:00PM"}, "as lastTransitionTime, found '26/03/2021 2:00PM'"),
        ({"lastHeartbeatTime": "now"}, "as lastHeartbeatTime, found 'now'"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_refused(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"condition 'Ready'.*{message}"):
        wanted({}, conditions=[condition("True") | wrong])


@pytest.mark.parametrize("time", ["2021-03-26T14:00:00Z", "2021-03-26 14:00:00+01:00", "2021-03-26T14:00:00.123Z"])
def test_a_time_may_have_any_form_of_rfc_3339(time: str) -> None:
    assert wanted({}, conditions=[condition("True", time)])["conditions"] == [condition("True", time)]


def test_conditions_in_two_places_are_refused() -> None:
    with pytest.raises(ValueError, match="not in both"):
        wanted({}, status={"conditions": [condition("True")]}, conditions=[condition("True")])


def test_a_kind_without_status_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match=r"Stateless of e\.com/v1 has no status subresource"):
        k8s_status.write(module(status={"a": 1}, kind="Stateless"), Server(obj()))


def test_a_status_is_written() -> None:
    server = Server(obj(a=1))
    result = k8s_status.write(module(status={"b": 2}), server)
    assert result["changed"]
    assert server.objects["ns", "n"]["status"] == {"a": 1, "b": 2}


def test_a_status_as_wanted_is_not_written() -> None:
    server = Server(obj(a=1), conflicts=1)
    assert k8s_status.write(module(status={"a": 1}), server)["changed"] is False


def test_a_status_is_replaced_as_a_whole_if_asked_for() -> None:
    server = Server(obj(a=1))
    k8s_status.write(module(status={"b": 2}, replace=True), server)
    assert server.objects["ns", "n"]["status"] == {"b": 2}


def test_conditions_are_written_without_the_options_that_were_not_given() -> None:
    server = Server(obj())
    given = {"type": "Ready", "status": "True", "reason": None, "message": None, "lastTransitionTime": BEFORE}
    k8s_status.write(module(conditions=[given]), server)
    assert server.objects["ns", "n"]["status"] == {"conditions": [condition("True")]}


def test_a_check_says_what_would_change_and_changes_nothing() -> None:
    server = Server(obj(a=1))
    result = k8s_status.write(module(status={"a": 2}, check_mode=True), server)
    assert (result["changed"], result["result"]["status"]) == (True, {"a": 2})
    assert server.objects["ns", "n"]["status"] == {"a": 1}


def test_a_write_that_meets_another_one_is_sent_again() -> None:
    server = Server(obj(a=1), conflicts=k8s_status.ATTEMPTS - 1)
    assert k8s_status.write(module(status={"a": 2}), server)["changed"]
    assert server.objects["ns", "n"]["status"] == {"a": 2}


def test_writes_that_meet_others_again_and_again_end() -> None:
    with pytest.raises(ConflictError):
        k8s_status.write(module(status={"a": 2}), Server(obj(a=1), conflicts=k8s_status.ATTEMPTS))


def test_an_object_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        k8s_status.write(module(status={"a": 2}), Server())
