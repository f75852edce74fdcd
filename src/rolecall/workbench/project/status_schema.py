"""Compares the statuses that the operator writes with the schema of a CRD, without an API server.

The API server rejects a status with an invalid value as a whole, and silently drops what a schema lacks. In both
cases, the result of a run isn't visible, or only a part of it. The statuses come from the functions that the operator
uses, one for each outcome, so that this module doesn't repeat what they write. A role can write its own conditions and
fields, which aren't known here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.status import ConditionContext, Readiness, Status
from rolecall.runner.runs.events import MESSAGE_LIMIT_BYTES
from rolecall.runner.runs.outcome import Outcome, Reported
from rolecall.workbench.project.crd_schema import PYTHON_TYPES, is_of_type
from rolecall.workbench.yaml_files import below

Schema = Mapping[str, Any]
Finding = tuple[Schema, str]
"""The part of the schema from which the line is known, and a message."""

_ANY: Final = "x-kubernetes-preserve-unknown-fields"
_NEEDED: Final = ("type", "status", "reason", "message", "lastTransitionTime")
"""The fields of a condition without which the next status, or a client that waits for it, is misled."""


def check_status(watch: Watch, root: Schema) -> Iterator[Finding]:
    """Yield how the schema of a kind (``openAPIV3Schema``) rejects or drops the statuses of a watch."""
    if root.get(_ANY) and "status" not in _properties(root):
        return
    schema = _properties(root).get("status")
    if not isinstance(schema, Mapping):
        yield root, f"the API server drops the whole status of {watch.gvk.kind}: {_lacking('status')}"
        return
    yield from _dropped_fields(watch, schema)
    found: dict[str, Schema] = {}
    for status in _statuses(watch):
        for place, text in _violations(schema, status, "status"):
            found.setdefault(text, place)
    for text, place in found.items():
        message = f"the API server rejects a status that the operator writes: {text}"
        yield place, f"{message}. Change the schema, or set manageStatus: false in watches.yaml"


def _statuses(watch: Watch) -> list[Status]:
    """Return the statuses of an object: a run, its results, a pause, and an interruption."""
    readiness = Readiness.of_watch(watch, default=True)
    context = ConditionContext(datetime(2026, 1, 1, tzinfo=UTC), 1)
    message = "x" * MESSAGE_LIMIT_BYTES
    running = readiness.while_running({}, context)
    success, completion = Outcome("successful"), "2026-01-01T00:00:00.000000"
    outcomes = (
        replace(success, completion=completion),
        replace(Outcome.of_failure(message), completion=completion),
        Outcome.of_failure("", is_final=True),
        replace(success, requeue_after_seconds=0.0),
        replace(success, reported=Reported(unready=message)),
    )
    return [
        running,
        *(readiness.after_run(running, outcome, context) for outcome in outcomes),
        readiness.while_paused({}, context),
        readiness.after_interruption(running, {}, message, context),
    ]


def _dropped_fields(watch: Watch, schema: Schema) -> Iterator[Finding]:
    kind = watch.gvk.kind
    for name in ("conditions", *watch.status):
        if not _keeps(schema, name):
            yield schema, f"the API server drops status.{name} of {kind}: {_lacking(f'status.{name}')}"
    items = below(schema, "properties", "conditions", "items")
    dropped = [name for name in _NEEDED if items and not _keeps(items, name)]
    if dropped:
        yield items, f"the API server drops fields of the conditions of {kind}: {_lacking(', '.join(dropped))}"


def _lacking(name: str) -> str:
    return f"the CRD's schema lacks {name}. Add it or {_ANY}: true, or set manageStatus: false in watches.yaml"


def _keeps(schema: Schema, name: str) -> bool:
    return name in _properties(schema) or bool(schema.get(_ANY)) or bool(schema.get("additionalProperties"))


def _violations(schema: Schema, value: Any, path: str) -> Iterator[Finding]:
    """Yield how a value violates a schema, without the rules (``x-kubernetes-validations``)."""
    expected = str(schema.get("type") or "")
    is_mixed = schema.get("x-kubernetes-int-or-string") and isinstance(value, int | str)
    if expected in PYTHON_TYPES and not is_mixed and not is_of_type(value, expected):
        yield schema, f"{path} must be of type {expected}"
    elif isinstance(value, dict):
        yield from _object_violations(schema, value, path)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield (
                schema,
                f"{path} can have {schema['maxItems']} items only (maxItems), the operator writes {len(value)}",
            )
        for item in value:
            yield from _violations(below(schema, "items"), item, f"{path}[]")
    elif text := _scalar_violation(schema, value):
        yield schema, f"{path} {text}"


def _object_violations(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[Finding]:
    properties, others = _properties(schema), below(schema, "additionalProperties")
    for name in schema.get("required") or ():
        if name not in value and "default" not in below(properties, name):
            yield schema, f"{path}.{name} is required, and the operator doesn't write it"
    for name, item in value.items():
        yield from _violations(below(properties, name) or others, item, f"{path}.{name}")


def _scalar_violation(schema: Schema, value: Any) -> str:
    """Return how a string, number, or boolean violates a schema, an empty string if it doesn't."""
    if "enum" in schema and value not in schema["enum"]:
        return f"can't be {value!r} (enum)"
    if not isinstance(value, str):
        return ""
    if len(value) < schema.get("minLength", 0):
        return f"can't be {_shown(value)} (minLength {schema['minLength']})"
    if len(value) > schema.get("maxLength", len(value)):
        return f"can't have {len(value)} characters (maxLength {schema['maxLength']})"
    try:
        is_match = re.search(str(schema.get("pattern", "")), value) is not None
    except re.error:  # Go's syntax differs a little
        is_match = True
    return "" if is_match else f"can't be {_shown(value)} (pattern {schema['pattern']})"


def _shown(value: str) -> str:
    return repr(value) if value else "empty"


def _properties(schema: Schema) -> Schema:
    return below(schema, "properties")
