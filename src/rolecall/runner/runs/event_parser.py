"""Parses the events of ansible-runner: a raw dictionary becomes a ``RunEvent``.

Only what the operator needs is kept, and nothing of a result that ``no_log`` hides: since ansible-core 2.19 even the
printed text of such a task quotes its message. Parsing happens in the process of the run, so that large results are
never sent to the operator.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rolecall.runner.runs.events import HIDDEN, RunEvent, cut, strip_colours
from rolecall.runner.runs.failure_messages import result_message, to_text

STDOUT_LIMIT_BYTES = 8192
"""How much printed text of one event is passed on."""

REQUEUE_ACTIONS = frozenset({"requeue_after", "operator_sdk.util.requeue_after", "rolecall.util.requeue_after"})
"""The actions by which a role requests a requeue."""

DEBUG_ACTIONS = frozenset({"debug", "ansible.builtin.debug", "ansible.legacy.debug"})
"""The actions that print a message for people."""

_VALIDATES = "Validating arguments against arg spec"
"""What the name of the task starts with that Ansible inserts into a role with argument specs."""

_NOT_SHOWN = frozenset(
    {"changed", "failed", "skipped", "skip_reason", "results", "item", "ansible_loop_var", "exception"}
)
_COUNT_NAMES = ("ok", "changed", "skipped", "failures", "dark", "rescued", "processed")


def read_event(raw: Mapping[str, Any]) -> RunEvent:
    """Reduce one event of ansible-runner; fields that are missing or of another type count as empty."""
    name = str(raw.get("event") or "")
    data = _mapping(raw.get("event_data"))
    result = _mapping(data.get("res"))
    censored = "censored" in result or result.get("_ansible_no_log") is True
    stats = name == "playbook_on_stats"
    return RunEvent(
        name=name,
        created=str(raw.get("created") or ""),
        started=to_text(data.get("start")),
        task=to_text(data.get("task")),
        full_name=to_text(data.get("name")) if data.get("name") != data.get("task") else "",
        task_id=to_text(data.get("task_uuid")),
        task_path=_argument_specs(data, result) or to_text(data.get("task_path")),
        action=to_text(data.get("task_action")),
        host=to_text(data.get("host")),
        item="" if censored else cut(_item(result), 256),
        message=HIDDEN if censored else cut(_debug_output(data, result) or result_message(result)),
        stdout="" if censored else cut(strip_colours(to_text(raw.get("stdout"))), STDOUT_LIMIT_BYTES),
        changed=result.get("changed") is True,
        censored=censored,
        ignored=bool(data.get("ignore_errors")),
        duration_seconds=_number(data.get("duration")),
        requeue=_requeue(name, data, result),
        counts={key: _mapping(data.get(key)) for key in _COUNT_NAMES} if stats else {},
        stats=_mapping(data.get("artifact_data")) if stats else {},
    )


def _debug_output(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return what ``debug: var=...`` shows: its result has the variable instead of a message."""
    if data.get("task_action") not in DEBUG_ACTIONS or "msg" in result:
        return ""
    shown = {key: value for key, value in result.items() if key not in _NOT_SHOWN and not key.startswith("_ansible")}
    return ", ".join(f"{key}: {to_text(value)}" for key, value in shown.items())


def _argument_specs(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return the place of the argument specs that a task of Ansible's own validates; empty for any other task.

    Ansible inserts this task before those of a role, and gives it the place of the play.
    """
    context = _mapping(result.get("validate_args_context"))
    role = context.get("path")
    if context.get("type") != "role" or not isinstance(role, str) or not str(data.get("task")).startswith(_VALIDATES):
        return ""
    names = (
        f"{role}/meta/{name}{ending}" for name in ("argument_specs", "main") for ending in (".yml", ".yaml", ".json")
    )
    return f"{next((name for name in names if Path(name).is_file()), f'{role}/meta/argument_specs.yml')}:1"


def _item(result: Mapping[str, Any]) -> str:
    label = result.get("_ansible_item_label", result.get(str(result.get("ansible_loop_var", "item"))))
    return "" if label is None else to_text(label)


def _requeue(name: str, data: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    is_result = name in ("runner_on_ok", "runner_item_on_ok")
    if not is_result or data.get("task_action") not in REQUEUE_ACTIONS or not result or "results" in result:
        return None
    wish = {key: result[key] for key in ("period", "at") if result.get(key) is not None}
    return wish or {"period": None}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
