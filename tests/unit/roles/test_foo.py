from copy import deepcopy
from typing import Any

import pytest

from tests.unit.roles.loading import load_filters

filters = load_filters("foo")

FOO = {"metadata": {"name": "f", "uid": "me", "generation": 2}, "status": {"observedGeneration": 2}}
WANTED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "labels": {"app": "nginx"}, "ownerReferences": [{"uid": "me", "controller": True}]},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}}},
}


def found(owner: str | None = "me") -> dict[str, Any]:
    """Describe the Deployment as the API server gives it back: with a uid, defaults and a status."""
    deployment = deepcopy(WANTED)
    deployment["metadata"]["uid"] = "found"
    deployment["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True, "name": "f"}] if owner else None
    deployment["metadata"]["labels"]["added-by"] = "somebody"
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    deployment["status"] = {"availableReplicas": 1}
    return deployment


def test_a_missing_deployment_is_created_and_never_patched() -> None:
    plan = filters.plan([], FOO, WANTED)
    assert plan["definition"]["metadata"] == {**WANTED["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}
    assert (plan["is_foreign"], plan["is_event_due"]) == (False, True)


def test_a_deployment_as_wanted_is_left_alone() -> None:
    plan = filters.plan([found()], FOO, WANTED)
    assert plan == {"is_foreign": False, "definition": None, "is_event_due": False}


@pytest.mark.parametrize(
    ("status", "is_ready"),
    [
        ({"availableReplicas": 2, "observedGeneration": 4}, True),
        ({"availableReplicas": 2, "observedGeneration": 3}, False),
        ({"availableReplicas": 1, "observedGeneration": 4}, False),
        ({}, False),
    ],
)
def test_foo_is_ready_when_its_deployment_has_all_replicas_of_this_generation(
    status: dict[str, Any], *, is_ready: bool
) -> None:
    deployment = found()
    deployment["metadata"]["generation"] = 4
    deployment["status"] = status
    report = {"available_replicas": status.get("availableReplicas", 0), "is_ready": is_ready}
    assert filters.report([deployment], {"skipped": True}) == report
    assert filters.report([found()], {"result": deployment}) == report
    deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not filters.report([deployment], {"skipped": True})["is_ready"]


@pytest.mark.parametrize("owner", ["other", None])
def test_a_deployment_of_somebody_else_is_refused(owner: str | None) -> None:
    plan = filters.plan([found(owner)], FOO, WANTED)
    assert (plan["is_foreign"], plan["definition"]) == (True, None)


def test_an_owner_that_is_not_the_controller_does_not_count() -> None:
    deployment = found()
    deployment["metadata"]["ownerReferences"] = [{"uid": "me"}]
    assert filters.plan([deployment], FOO, WANTED)["is_foreign"]


@pytest.mark.parametrize("field", ["replicas", "image", "containers", "label"])
def test_drift_is_repaired_on_that_very_deployment(field: str) -> None:
    deployment = found()
    containers = deployment["spec"]["template"]["spec"]["containers"]
    match field:
        case "replicas":
            deployment["spec"]["replicas"] = 5
        case "image":
            containers[0]["image"] = "nginx:1"
        case "containers":
            containers.append({"name": "other", "image": "other"})
        case _:
            deployment["metadata"].pop("labels")
    plan = filters.plan([deployment], FOO, WANTED)
    assert plan["definition"] == {**WANTED, "metadata": {**WANTED["metadata"], "uid": "found"}}
    assert plan["is_event_due"]


def test_replicas_that_nobody_asks_for_are_no_drift() -> None:
    wanted = deepcopy(WANTED)
    del wanted["spec"]["replicas"]
    assert filters.plan([found()], FOO, wanted)["definition"] is None


def test_a_deployment_on_its_way_out_is_not_repaired() -> None:
    deployment = found()
    deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    deployment["spec"]["replicas"] = 5
    assert filters.plan([deployment], FOO, WANTED)["definition"] is None


@pytest.mark.parametrize("status", [{}, {"status": {"observedGeneration": 1}}])
def test_the_first_sync_of_a_generation_is_event_due(status: dict[str, Any]) -> None:
    foo = {"metadata": FOO["metadata"], **status}
    assert filters.plan([found()], foo, WANTED)["is_event_due"]


def test_ansible_finds_the_filter() -> None:
    assert set(filters.FilterModule().filters()) == {"foo_plan", "foo_report"}
