from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.roles.loading import load_filters

filters = load_filters("podscaler")

LIMIT = 500


def podscaler(count: int = 2, uid: str = "me", conditions: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    status = {} if conditions is None else {"status": {"conditions": conditions}}
    return {"metadata": {"uid": uid}, "spec": {"count": count, "selector": {"app": "nginx", "a/b": "c"}}, **status}


def pod(name: str, owner: str | None = "me", age: int = 0, **state: Any) -> dict[str, Any]:
    """Describe a pod; `owner` is the uid of a PodScaler, the name of another kind, or none."""
    kinds = {"ReplicaSet": "apps/v1", "Node": "v1"}
    reference = {"apiVersion": "scaling.example.com/v1", "kind": "PodScaler", "uid": owner, "controller": True}
    if owner in kinds:
        reference |= {"apiVersion": kinds[owner], "kind": owner}
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": f"2026-01-01T00:00:{59 - age:02d}Z",
            **({"ownerReferences": [reference]} if owner else {}),
            **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if state.get("terminating") else {}),
        },
        "status": {
            "phase": state.get("phase", "Running"),
            "conditions": [{"type": "Ready", "status": "True" if state.get("ready", True) else "False"}],
        },
    }


def deleted(plan: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in plan["delete"]]


def test_missing_pods_are_created() -> None:
    plan = filters.plan([pod("a", "ReplicaSet")], podscaler(4), LIMIT)
    assert plan["missing"] == 3
    assert plan["stats"] == {"pods": 4, "ready": 1, "is_ready": False, "surplus": 0, "selector": "a/b=c,app=nginx"}


def test_as_many_pods_as_asked_for_need_nothing() -> None:
    plan = filters.plan([pod("a"), pod("b")], podscaler(2), LIMIT)
    assert (plan["missing"], plan["delete"], plan["condition"], plan["is_complete"]) == (0, [], None, True)


@pytest.mark.parametrize("state", [{"terminating": True}, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_a_pod_that_ends_does_not_count(state: dict[str, Any]) -> None:
    plan = filters.plan([pod("a"), pod("b", **state)], podscaler(2), LIMIT)
    assert plan["missing"] == 1
    assert plan["stats"]["ready"] == 1


def test_own_pods_go_before_pods_without_a_controller() -> None:
    pods = [pod("free", None), pod("mine"), pod("free2", None)]
    assert deleted(filters.plan(pods, podscaler(2), LIMIT)) == ["mine"]


def test_pods_that_are_not_ready_go_before_ready_ones_and_young_before_old() -> None:
    pods = [pod("old-unready", age=9, ready=False), pod("young", age=1), pod("old", age=5), pod("unready", ready=False)]
    assert deleted(filters.plan(pods, podscaler(0), LIMIT)) == ["unready", "old-unready", "young", "old"]


@pytest.mark.parametrize("owner", ["ReplicaSet", "Node", "other"])
def test_a_pod_of_another_controller_is_never_deleted(owner: str) -> None:
    plan = filters.plan([pod("a", owner), pod("b", owner)], podscaler(0), LIMIT)
    assert plan["delete"] == []
    assert plan["stats"]["pods"] == 2
    assert plan["stats"]["surplus"] == 2


def test_a_surplus_of_others_is_a_condition() -> None:
    pods = [pod(str(number), "ReplicaSet") for number in range(6)]
    plan = filters.plan(pods, podscaler(4), LIMIT)
    assert plan["condition"] == {
        "type": "Surplus",
        "status": "True",
        "reason": "OtherControllers",
        "message": "2 pods belong to other controllers and cannot be deleted for the count of 4",
    }


def test_a_condition_that_is_there_already_is_not_written_again() -> None:
    pods = [pod("a", "ReplicaSet")]
    condition = filters.plan(pods, podscaler(0), LIMIT)["condition"]
    current = {**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    assert filters.plan(pods, podscaler(0, conditions=[current]), LIMIT)["condition"] is None


def test_a_condition_ends_with_the_surplus() -> None:
    current = {"type": "Surplus", "status": "True", "reason": "OtherControllers", "message": "…"}
    condition = filters.plan([], podscaler(0, conditions=[current]), LIMIT)["condition"]
    assert (condition["status"], condition["reason"]) == ("False", "WithinCount")


def test_one_run_does_not_create_more_than_the_limit() -> None:
    plan = filters.plan([], podscaler(7), 5)
    assert (plan["missing"], plan["stats"]["pods"], plan["is_complete"]) == (5, 5, False)


def test_one_run_does_not_delete_more_than_the_limit_and_calls_the_rest_no_surplus() -> None:
    plan = filters.plan([pod(str(number)) for number in range(7)], podscaler(0), 5)
    assert (len(plan["delete"]), plan["is_complete"], plan["stats"]["surplus"]) == (5, False, 0)


def test_two_podscalers_with_one_selector_and_count_delete_just_what_is_too_much() -> None:
    pods = [pod("a1", "a", 4), pod("b1", "b", 3), pod("a2", "a", 2, ready=False), pod("b2", "b", 1)]
    by_a = deleted(filters.plan(pods, podscaler(2, "a"), LIMIT))
    by_b = deleted(filters.plan(pods, podscaler(2, "b"), LIMIT))
    assert (by_a, by_b) == (["a2"], ["b2"])


owners = st.sampled_from(["a", "b", None, "ReplicaSet"])


@given(st.lists(st.tuples(owners, st.integers(0, 59), st.booleans()), max_size=12), st.integers(0, 8))
def test_the_plan_never_goes_below_the_count_and_accounts_for_every_pod(
    described: list[tuple[str | None, int, bool]], count: int
) -> None:
    pods = [pod(str(n), owner, age, ready=ready) for n, (owner, age, ready) in enumerate(described)]
    plan = filters.plan(pods, podscaler(count, "a"), LIMIT)
    assert len(pods) - len(plan["delete"]) + plan["missing"] == plan["stats"]["pods"]
    assert plan["stats"]["pods"] == count + plan["stats"]["surplus"]


@given(st.lists(st.tuples(owners, st.integers(0, 59), st.booleans()), max_size=12), st.integers(0, 8))
def test_two_podscalers_at_once_never_go_below_the_count(
    described: list[tuple[str | None, int, bool]], count: int
) -> None:
    pods = [pod(str(n), owner, age, ready=ready) for n, (owner, age, ready) in enumerate(described)]
    gone = {name for uid in "ab" for name in deleted(filters.plan(pods, podscaler(count, uid), LIMIT))}
    assert len(pods) - len(gone) >= min(count, len(pods))


def test_a_pod_that_is_gone_already_is_no_error() -> None:
    gone = {"error": {"msg": 'Failed to delete object: {"reason":"NotFound","code":404}'}}
    forbidden = {"error": {"msg": 'Failed to delete object: {"reason":"Forbidden","code":403}'}}
    assert filters.deletion_errors({"result": {"results": [gone, {"changed": True}]}}) == []
    assert filters.deletion_errors({"result": {"results": [gone, forbidden]}}) == [forbidden["error"]["msg"]]
    assert filters.deletion_errors({"changed": False, "result": {}, **gone}) == []


def test_a_deletion_that_failed_as_a_whole_is_an_error() -> None:
    assert filters.deletion_errors({"failed": True, "msg": "no cluster"}) == ["no cluster"]


def test_ansible_finds_the_filters() -> None:
    assert set(filters.FilterModule().filters()) == {"podscaler_plan", "podscaler_deletion_errors"}


@pytest.mark.parametrize(("ready", "is_ready"), [((True, True), True), ((True, False), False), ((True,), False)])
def test_podscaler_is_ready_when_as_many_pods_as_wanted_are_ready(ready: tuple[bool, ...], *, is_ready: bool) -> None:
    pods = [pod(f"p{number}", ready=each) for number, each in enumerate(ready)]
    assert filters.plan(pods, podscaler(2), LIMIT)["stats"]["is_ready"] is is_ready
