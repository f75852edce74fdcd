"""The events of a run, as plain values, and how they are read from ansible-runner.

A ``RunEvent`` is the small part of one ansible-runner event that the operator needs. It can be logged, sent through a
pipe, and built by tests. Strings contain no colors. Each has a limit: authors of roles and objects choose names of
tasks and hosts, messages, and statistics, and all objects share the operator, its log, and its records.

``read_event`` runs in the process of the run, so that large results are never sent to the operator. It keeps nothing of
a result that ``no_log`` hides: since ansible-core 2.19 even the printed text of such a task quotes its message. The
message of a failed task is the most useful string in the result of a module: modules report failures in a message, in
the output of a program, in a traceback, or in the items of a loop. Every failed task has one, regardless of the size of
its result. A Status object of Kubernetes in it is reduced to its message; the files of the run have the whole.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rolecall.kube.errors import plain_errors
from rolecall.kube.quantities import format_bytes
from rolecall.runner.config.content import ARGUMENT_SPECS
from rolecall.runner.runs.discovery_image import PROXY_VARIABLE

MESSAGE_LIMIT_BYTES = 2048
"""The longest message of a run: it has to fit into a condition and into a log line."""

RECAP_LIMIT_BYTES = 1 << 20
"""The most that a run may report at its end: the values of ``set_stats`` and the counts of its hosts. Objects of
Kubernetes aren't larger either."""

HIDDEN = "hidden, because the task says no_log"

REQUEUE_ACTIONS = frozenset({"requeue_after", "operator_sdk.util.requeue_after", "rolecall.util.requeue_after"})
"""The actions by which a role requests a requeue."""

STATUS_ACTIONS = frozenset({"k8s_status", "operator_sdk.util.k8s_status", "rolecall.util.k8s_status"})
"""The actions by which a role writes conditions."""

PRUNE_ACTION = "rolecall.util.prune"
"""The action by which a role states that its run has named all objects that it needs."""

DEBUG_ACTIONS = frozenset({"debug", "ansible.builtin.debug", "ansible.legacy.debug"})
"""The actions that print a message for people."""

_STDOUT_LIMIT_BYTES = 8192
_ITEM_LIMIT_BYTES = 256
_NAME_LIMIT_BYTES = 512
_MAX_CONDITIONS = 100
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_VALIDATION = "Validating arguments against arg spec"
"""The start of the name of the task that Ansible inserts into a role with argument specs."""

_NOT_SHOWN = frozenset(
    {"changed", "failed", "skipped", "skip_reason", "results", "item", "ansible_loop_var", "exception"}
)
_CREDENTIALS = ("host", "kubeconfig", "context", "api_key", "username", "client_cert", "impersonate_user")
"""The options of the modules of kubernetes.core that select a server, or who sends a request."""

_CREDENTIAL_FLAG = re.compile(
    r"--(kubeconfig|server|context|cluster|user|token|as|kube-context|kube-apiserver|kube-token|kube-as-user)(?![\w-])"
    r"|\b(KUBECONFIG|K8S_AUTH_\w+|HELM_KUBE\w+)="
)
"""The same of kubectl and helm."""

_FAILED_EVENTS = frozenset({"runner_on_failed", "runner_item_on_failed", "runner_on_unreachable"})
_COUNT_NAMES = ("ok", "changed", "skipped", "failures", "dark", "rescued", "processed")
_PRINTED_RESULT = re.compile(r"^(?:fatal|failed): \[[^\n]*?=> (?=\{)", re.MULTILINE)
_FAILED_PREFIX = "Task failed: "
_EXIT_CODE_ONLY = ("non-zero return code", "The command exited with a non-zero return code.")
"""The messages of the command modules up to ansible-core 2.20 and from 2.21: they name neither code nor reason."""


def strip_colors(text: str) -> str:
    """Return the text without terminal control sequences and carriage returns."""
    return _COLOR.sub("", text).replace("\r", "")


def cut(text: str, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> str:
    """Return the text, cut to that many bytes of UTF-8 at a character boundary."""
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= limit_bytes:
        return encoded.decode("utf-8")
    mark = "…"
    return encoded[: limit_bytes - len(mark.encode())].decode("utf-8", errors="ignore") + mark


def to_text(value: object) -> str:
    """Return a string as it is, an empty string for None, and JSON for anything else."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run, reduced to what the log and the outcome need.

    ``name`` is ansible-runner's (``runner_on_failed``, ...) or empty. ``full_name`` is the name of a starting task with
    its role, if it differs from ``task``. ``started`` is when the task of a result started, in ISO 8601. ``message`` is
    already censored and cut; ``stdout`` is what Ansible printed, without colors, and empty for a censored result.
    ``written`` are the conditions that ``k8s_status`` has set, with the api_version, kind, namespace, and name of its
    object. ``prune`` has the options of ``rolecall.util.prune``, None in it if they are hidden. ``job`` is the id of a
    background job that the task has started, or that has ended (``job_ended``). ``bypass`` is the option or flag by
    which the task reaches another server than the operator's proxy, or the same one with other credentials.
    """

    name: str = ""
    created: str = ""
    started: str = ""
    task: str = ""
    full_name: str = ""
    task_id: str = ""
    task_path: str = ""
    action: str = ""
    host: str = ""
    item: str = ""
    message: str = ""
    stdout: str = ""
    changed: bool = False
    censored: bool = False
    ignored: bool = False
    duration_seconds: float = 0.0
    requeue: Mapping[str, Any] | None = None
    written: Mapping[str, Any] | None = None
    prune: Mapping[str, Any] | None = None
    job: str = ""
    job_ended: bool = False
    bypass: str = ""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line of JSON, without empty fields."""
        return json.dumps({key: value for key, value in asdict(self).items() if value})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the output of ``to_json``. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))


def read_event(raw: Mapping[str, Any]) -> RunEvent:
    """Reduce one event of ansible-runner; missing fields, and fields of another type, count as empty."""
    name = str(raw.get("event") or "")
    data = _mapping(raw.get("event_data"))
    result = _mapping(data.get("res")) or _printed_result(name, str(raw.get("stdout") or ""))
    censored = "censored" in result or result.get("_ansible_no_log") is True
    message = HIDDEN if censored else _debug_output(data, result) or result_message(result)
    stats = name == "playbook_on_stats"
    item = result.get("_ansible_item_label", result.get(str(result.get("ansible_loop_var", "item"))))
    duration = data.get("duration")
    event = RunEvent(
        name=name,
        created=_name(raw.get("created")),
        started=_name(data.get("start")),
        task=_name(data.get("task")),
        full_name=_name(data.get("name")) if data.get("name") != data.get("task") else "",
        task_id=_name(data.get("task_uuid")),
        task_path=_argument_specs(data, result) or cut(to_text(data.get("task_path"))),
        action=_name(data.get("task_action")),
        host=_name(data.get("host")),
        item="" if censored else cut(to_text(item), _ITEM_LIMIT_BYTES),
        message=cut(plain_errors(message) if name in _FAILED_EVENTS else message),
        stdout="" if censored else cut(strip_colors(to_text(raw.get("stdout"))), _STDOUT_LIMIT_BYTES),
        changed=result.get("changed") is True,
        censored=censored,
        ignored=bool(data.get("ignore_errors")),
        duration_seconds=float(duration) if isinstance(duration, int | float) else 0.0,
        requeue=_requeue(name, data, result),
        written=_written(name, data, result),
        prune=_prune(name, data, result),
        job=_name(result.get("ansible_job_id")),
        job_ended=bool(result.get("finished")) and not _was_killed(result),
        bypass=_bypass(result),
        counts={key: _counts(data.get(key)) for key in _COUNT_NAMES} if stats else {},
        stats=_mapping(data.get("artifact_data")) if stats else {},
    )
    size = len(event.to_json()) if stats else 0
    if size <= RECAP_LIMIT_BYTES:
        return event
    what = f"the values of set_stats and the counts of hosts take {format_bytes(size)}"
    message = f"{what}, and a run may report at most {format_bytes(RECAP_LIMIT_BYTES)}"
    return replace(event, counts={}, stats={}, message=message)


def _counts(value: object) -> dict[str, Any]:
    return {_name(host): count for host, count in _mapping(value).items()}


def _name(value: object) -> str:
    return cut(to_text(value), _NAME_LIMIT_BYTES)


def _printed_result(name: str, printed: str) -> Mapping[str, Any]:
    """Return the result of a failed task from what Ansible printed: ansible-runner drops a large one from the event."""
    text = strip_colors(printed) if name in _FAILED_EVENTS else ""
    found = _PRINTED_RESULT.search(text)
    try:
        return _mapping(json.JSONDecoder().raw_decode(text, found.end())[0]) if found else {}
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _debug_output(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return the output of ``debug: var=...``: its result has the variable instead of a message."""
    if data.get("task_action") not in DEBUG_ACTIONS or "msg" in result:
        return ""
    shown = {key: value for key, value in result.items() if key not in _NOT_SHOWN and not key.startswith("_ansible")}
    return ", ".join(f"{key}: {to_text(value)}" for key, value in shown.items())


def _argument_specs(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return the file and line of the argument specs that Ansible's own task validates; empty for any other task.

    Ansible inserts this task before those of a role, and gives it the path of the play.
    """
    context = _mapping(result.get("validate_args_context"))
    role = context.get("path")
    if context.get("type") != "role" or not isinstance(role, str) or not str(data.get("task")).startswith(_VALIDATION):
        return ""
    paths = [Path(role, name) for name in ARGUMENT_SPECS]
    return f"{next((path for path in paths if path.is_file()), paths[0])}:1"


def _requeue(name: str, data: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    is_result = name in ("runner_on_ok", "runner_item_on_ok")
    if not is_result or data.get("task_action") not in REQUEUE_ACTIONS or not result or "results" in result:
        return None
    given = {key: result[key] for key in ("period", "at") if result.get(key) is not None} or {"period": None}
    return {key: value if isinstance(value, int | float | None) else _name(value) for key, value in given.items()}


def _written(name: str, data: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the conditions that ``k8s_status`` has set, and the object."""
    arguments = _mapping(_mapping(result.get("invocation")).get("module_args"))
    found = arguments.get("conditions") or _mapping(arguments.get("status")).get("conditions")
    is_result = name in ("runner_on_ok", "runner_item_on_ok")
    if not is_result or data.get("task_action") not in STATUS_ACTIONS or not isinstance(found, list):
        return None
    conditions = [
        {key: cut(to_text(item[key]), _ITEM_LIMIT_BYTES) for key in ("type", "status", "reason") if item.get(key)}
        for item in found[:_MAX_CONDITIONS]
        if isinstance(item, Mapping)
    ]
    target = {key: _name(arguments.get(key)) for key in ("api_version", "kind", "namespace", "name")}
    return {**target, "conditions": conditions}


def _prune(name: str, data: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the options with which ``rolecall.util.prune`` was reached, None for any other event."""
    if name != "runner_on_ok" or data.get("task_action") != PRUNE_ACTION:
        return None
    if "censored" in result or result.get("_ansible_no_log") is True:
        return {"options": None}
    options = result.get("prune")
    fits = isinstance(options, Mapping) and len(to_text(options)) <= _STDOUT_LIMIT_BYTES
    return {"options": options} if fits else None


def _was_killed(result: Mapping[str, Any]) -> bool:
    """Return whether a background job ended without a result, which Ansible's wrapper reports with its output."""
    message = to_text(result.get("msg"))
    is_crashed = "cmd" in result and ("outdata" in result or "Traceback" in message)
    return is_crashed or message == "could not find job"


def _bypass(result: Mapping[str, Any]) -> str:
    """Return the option or flag by which a task has reached a server without the credentials of its run."""
    arguments = _mapping(_mapping(result.get("invocation")).get("module_args"))
    own = {None, "", *(os.environ.get(name) for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG", PROXY_VARIABLE))}
    for name in _CREDENTIALS:
        if name in arguments and to_text(arguments[name]) not in own:
            return name
    command = arguments.get("_raw_params") or arguments.get("argv") or arguments.get("cmd")
    words = " ".join(map(to_text, command)) if isinstance(command, list) else to_text(command)
    found = _CREDENTIAL_FLAG.search(words)
    return found[0] if found else ""


def result_message(result: Mapping[str, Any]) -> str:
    """Return the most useful text of a task's result; for a loop, that of the first item that failed."""
    items = result.get("results")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and (item.get("failed") or item.get("unreachable")):
            return HIDDEN if "censored" in item else result_message(item)
    message = to_text(result.get("msg")).removeprefix(_FAILED_PREFIX)
    output: object = ""
    if message in _EXIT_CODE_ONLY:
        message = f"{_EXIT_CODE_ONLY[0]} {result.get('rc')}"
        output = result.get("stderr") or result.get("stdout")
    elif result.get("module_stderr"):
        message, output = message or "the module crashed", result["module_stderr"]
    if message:
        tail = _last_lines(to_text(output))
        return f"{message}: {tail}" if tail else message
    return _last_lines(to_text(result.get("exception"))) or to_text(result.get("reason"))


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in strip_colors(text).splitlines() if line.strip()]
    return " | ".join(lines[-count:])
