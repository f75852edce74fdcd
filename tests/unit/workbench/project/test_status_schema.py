from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.workbench.project.status_schema import check_status

WATCH = Watch(GVK("example.com", "v1", "Thing"), RoleContent(Path("thing")))

# As controller-gen writes metav1.Condition, without descriptions.
CONDITION = r"""
type: object
required: [lastTransitionTime, message, reason, status, type]
properties:
  lastTransitionTime: {format: date-time, type: string}
  message: {maxLength: 32768, type: string}
  observedGeneration: {format: int64, minimum: 0, type: integer}
  reason: {maxLength: 1024, minLength: 1, pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$', type: string}
  status: {enum: ["True", "False", Unknown], type: string}
  type:
    maxLength: 316
    pattern: "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
      (([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    type: string
"""


def messages(status: dict[str, Any] | None, watch: Watch = WATCH) -> list[str]:
    """Return the problems of a kind with this schema of the status."""
    root = {"type": "object", "properties": {"spec": {}} | ({"status": status} if status is not None else {})}
    return [text for _, text in check_status(watch, root)]


def with_conditions(**changes: Any) -> dict[str, Any]:
    """Return a schema of the status with conditions of controller-gen, some of whose properties are changed."""
    condition = yaml.safe_load(CONDITION)
    for name, change in changes.items():
        condition["properties"][name] |= change
    return {"type": "object", "properties": {"conditions": {"type": "array", "items": condition}}}


def test_conditions_of_controller_gen_accept_every_status_of_the_operator() -> None:
    assert messages(with_conditions()) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "additionalProperties": True},
        {"properties": {"conditions": {"items": {"x-kubernetes-preserve-unknown-fields": True}}}},
    ],
)
def test_open_schema_accepts_every_status(schema: dict[str, Any]) -> None:
    assert messages(schema) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"type": {"enum": ["Ready"]}}, "status.conditions[].type can't be 'Running' (enum)"),
        ({"reason": {"enum": ["Done"]}}, "status.conditions[].reason can't be 'Running' (enum)"),
        ({"reason": {"pattern": "^[a-z]+$"}}, "status.conditions[].reason can't be 'Running' (pattern ^[a-z]+$)"),
        ({"message": {"minLength": 1}}, "status.conditions[].message can't be empty (minLength 1)"),
        ({"message": {"maxLength": 64}}, "status.conditions[].message can't have 2048 characters (maxLength 64)"),
        ({"status": {"type": "boolean"}}, "status.conditions[].status must be of type boolean"),
    ],
)
def test_schema_that_rejects_a_condition_is_reported(changes: dict[str, Any], text: str) -> None:
    status = with_conditions(**{name: {"enum": None, **change} for name, change in changes.items()})
    for change in status["properties"]["conditions"]["items"]["properties"].values():
        if change.get("enum", 0) is None:
            del change["enum"]
    assert any(
        f"the API server rejects a status that the operator writes: {text}." in each for each in messages(status)
    )


def test_schema_that_requires_or_limits_more_is_reported() -> None:
    status = with_conditions()
    status["properties"]["conditions"]["maxItems"] = 3
    status["properties"]["conditions"]["items"]["required"].append("severity")
    status["required"] = ["phase"]
    found = " ".join(messages(status))
    assert "status.phase is required" in found
    assert "status.conditions[].severity is required" in found
    assert "status.conditions can have 3 items only" in found
    status["properties"]["phase"] = {"type": "string", "default": ""}
    assert "status.phase" not in " ".join(messages(status))


def test_dropped_conditions_are_reported() -> None:
    [text] = messages(None)
    assert "drops the whole status of Thing" in text
    [text] = messages({"type": "object", "properties": {"phase": {"type": "string"}}})
    assert "drops status.conditions of Thing: the CRD's schema lacks status.conditions" in text


def test_dropped_fields_of_conditions_and_of_the_status_are_reported() -> None:
    status = with_conditions()
    condition = status["properties"]["conditions"]["items"]
    del condition["properties"]["message"], condition["required"]
    [text] = messages(status)
    assert "drops fields of the conditions of Thing: the CRD's schema lacks message" in text
    mapped = Watch(WATCH.gvk, WATCH.content, status={"ready": FieldPath.parse("$.x")})
    assert any("drops status.ready of Thing" in each for each in messages(with_conditions(), mapped))
