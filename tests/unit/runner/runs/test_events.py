import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.config.settings import LogEvents
from rolecall.runner.runs.events import (
    HIDDEN,
    RECAP_LIMIT_BYTES,
    RunEvent,
    cut,
    read_event,
    result_message,
    strip_colors,
)
from rolecall.runner.runs.launcher import log_line
from rolecall.runner.runs.outcome import Outcome, OutcomeBuilder


def raw_event(name: str, result: dict[str, Any] | None = None, **data: Any) -> dict[str, Any]:
    """Return an event as ansible-runner hands it over."""
    base = {"task": "Do it", "task_action": "command", "task_uuid": "t1", "host": "localhost"}
    return {"event": name, "created": "2026-01-01T00:00:00+00:00", "event_data": base | data | {"res": result or {}}}


@given(st.text(), st.integers(min_value=3, max_value=50))
def test_cut_text_fits_and_ends_at_a_character(text: str, limit: int) -> None:
    assert len(cut(text, limit).encode()) <= limit


@pytest.mark.parametrize(
    ("text", "expected"),
    [("é" * 1024, "é" * 1024), ("é" * 1025, "é" * 1022 + "…"), ("a\ud800b", "a?b")],
    ids=["fits", "too long", "half a surrogate pair"],
)
def test_longer_text_is_cut_with_a_mark(text: str, expected: str) -> None:
    assert cut(text) == expected


def test_colors_and_carriage_returns_are_removed() -> None:
    assert strip_colors("\x1b[0;31mred\x1b[0m\r\nplain") == "red\nplain"


@pytest.mark.parametrize(
    "event",
    [
        RunEvent("", stdout="a\nb"),
        RunEvent("runner_on_ok", task="A", changed=True, requeue={"period": "3s"}, counts={"ok": {"localhost": 1}}),
    ],
)
def test_event_survives_a_pipe_as_one_line(event: RunEvent) -> None:
    assert RunEvent.from_json(event.to_json()) == event
    assert "\n" not in event.to_json()


def test_censored_result_is_dropped() -> None:
    raw = raw_event("runner_on_failed", {"censored": "hidden due to no_log", "msg": "s3cret", "item": "s3cret"})
    event = read_event(raw | {"stdout": "[ERROR]: Task failed: s3cret"})
    assert event.censored
    assert event.message == HIDDEN
    assert "s3cret" not in event.to_json()


def test_failure_of_kubernetes_is_reduced_to_its_message_and_code_before_it_is_cut() -> None:
    body = json.dumps(
        {"kind": "Status", "status": "Failure", "details": "x" * 5000, "message": "pods is forbidden", "code": 403}
    )
    result = {"msg": f"Failed to patch object: {body.encode()!r}"}
    assert (
        read_event(raw_event("runner_on_failed", result)).message == "Failed to patch object: pods is forbidden (403)"
    )
    shown = read_event(raw_event("runner_on_ok", {"msg": body[:200]}, task_action="ansible.builtin.debug"))
    assert shown.message == body[:200], "what the author prints stays"


def test_variable_shown_by_debug_is_the_message() -> None:
    result = {"size": {"a": 1}, "changed": False, "_ansible_verbose_always": True, "_ansible_no_log": False}
    assert (
        read_event(raw_event("runner_on_ok", result, task_action="ansible.builtin.debug")).message == 'size: {"a": 1}'
    )


def test_fields_are_copied() -> None:
    fields = {"ignore_errors": True, "start": "2027-01-15T08:00:00+00:00", "duration": 1.5, "task_path": "a:1"}
    raw = raw_event("runner_on_failed", {"msg": "x", "changed": True}, **fields)
    event = read_event(raw | {"stdout": "\x1b[0;31mfatal\x1b[0m"})
    assert (event.name, event.task, event.host, event.message) == ("runner_on_failed", "Do it", "localhost", "x")
    assert (event.changed, event.ignored, event.duration_seconds) == (True, True, 1.5)
    assert (event.task_path, event.stdout, event.started) == ("a:1", "fatal", "2027-01-15T08:00:00+00:00")


VALIDATION = "Validating arguments against arg spec 'main' - Sizes"


@pytest.mark.parametrize("file", ["argument_specs.yml", "argument_specs.yaml", "main.yml"])
def test_path_of_argument_validation_is_the_argument_specs_of_the_role(tmp_path: Path, file: str) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / file).write_text("")
    context = {"type": "role", "name": "thing", "argument_spec_name": "main", "path": str(tmp_path)}
    raw = raw_event(
        "runner_on_failed", {"validate_args_context": context}, task=VALIDATION, task_path="/run/project/main.json:1"
    )
    assert read_event(raw).task_path == f"{tmp_path}/meta/{file}:1"


@pytest.mark.parametrize(
    ("task", "context"),
    [
        ("Check it", {"type": "role", "path": "/roles/thing"}),
        (VALIDATION, {}),
        (VALIDATION, {"type": "role", "path": 1}),
    ],
)
def test_other_task_keeps_its_path(task: str, context: dict[str, Any]) -> None:
    raw = raw_event("runner_on_ok", {"validate_args_context": context}, task=task, task_path="a.yml:3")
    assert read_event(raw).task_path == "a.yml:3"


@pytest.mark.parametrize(("name", "full_name"), [("thing : A", "thing : A"), ("A", ""), (None, "")])
def test_starting_task_has_its_name_with_the_role(name: str | None, full_name: str) -> None:
    event = read_event({"event": "playbook_on_task_start", "event_data": {"task": "A", "name": name}})
    assert (event.task, event.full_name) == ("A", full_name)


def test_recap_has_counts_and_stats() -> None:
    raw = raw_event("playbook_on_stats", ok={"localhost": 2}, dark={}, artifact_data={"pods": 3})
    event = read_event(raw)
    assert event.counts["ok"] == {"localhost": 2}
    assert event.stats == {"pods": 3}


@pytest.mark.parametrize("action", ["operator_sdk.util.requeue_after", "rolecall.util.requeue_after", "requeue_after"])
def test_requeue_request_is_passed_on(action: str) -> None:
    assert read_event(raw_event("runner_on_ok", {"period": "3s"}, task_action=action)).requeue == {"period": "3s"}


@pytest.mark.parametrize(
    "raw",
    [
        raw_event("runner_on_skipped", task_action="rolecall.util.requeue_after"),
        raw_event("runner_on_failed", {"msg": "bad argument"}, task_action="rolecall.util.requeue_after"),
        raw_event("runner_on_ok", {"results": [{}]}, task_action="rolecall.util.requeue_after"),
        raw_event("runner_on_ok", {"period": "3s"}, task_action="other.collection.requeue_after"),
        raw_event("playbook_on_task_start", task_action="requeue_after"),
    ],
)
def test_other_events_request_no_requeue(raw: dict[str, Any]) -> None:
    assert read_event(raw).requeue is None


def test_requeue_request_without_a_time_is_passed_on() -> None:
    raw = raw_event("runner_on_ok", {"censored": "x"}, task_action="rolecall.util.requeue_after")
    assert read_event(raw).requeue == {"period": None}


@pytest.mark.parametrize(
    ("arguments", "bypass"),
    [
        ({"kubeconfig": "/etc/other"}, "kubeconfig"),
        ({"kubeconfig": {"clusters": []}}, "kubeconfig"),
        ({"host": "https://other:6443"}, "host"),
        ({"context": "other"}, "context"),
        ({"api_key": "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"}, "api_key"),
        ({"impersonate_user": "other"}, "impersonate_user"),
        ({"_raw_params": "kubectl --kubeconfig /etc/other get pods"}, "--kubeconfig"),
        ({"argv": ["helm", "list", "--kube-context=other"]}, "--kube-context"),
        ({"_raw_params": "KUBECONFIG=/etc/other kubectl get pods"}, "KUBECONFIG="),
        ({"_raw_params": "kubectl get pods --as=other"}, "--as"),
        ({"kubeconfig": "/own", "host": None, "context": "", "name": "host"}, ""),
        ({"_raw_params": "kubectl get pods --assume --server-side"}, ""),
        ({"argv": ["echo", 5]}, ""),
        ("text", ""),
    ],
)
def test_task_that_names_another_server_or_user_bypasses_the_run(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, bypass: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/own")
    event = read_event(raw_event("runner_on_ok", {"invocation": {"module_args": arguments}}))
    assert event.bypass == bypass


def test_background_job_is_passed_on() -> None:
    result = {"ansible_job_id": "1.2", "started": 1, "finished": 0}
    began = read_event(raw_event("runner_on_ok", result))
    ended = read_event(raw_event("runner_on_ok", {**result, "finished": 1}))
    assert [(each.job, each.job_ended) for each in (began, ended)] == [("1.2", False), ("1.2", True)]


@pytest.mark.parametrize(
    "killed",
    [
        {"cmd": "m.py", "outdata": "", "msg": "No child processes"},
        {"cmd": "m.py", "data": "", "msg": "Traceback (most recent call last):\n  json.decoder.JSONDecodeError"},
        {"msg": "could not find job"},
    ],
)
def test_background_job_that_was_killed_has_not_ended(killed: dict[str, Any]) -> None:
    """The failure may be hidden by ``failed_when``; the results are those of Ansible's ``async_wrapper``."""
    event = read_event(raw_event("runner_on_ok", {"ansible_job_id": "1.2", "finished": 1, **killed}))
    assert (event.job, event.job_ended) == ("1.2", False)


def test_label_of_an_item_is_preferred() -> None:
    assert read_event(raw_event("runner_item_on_ok", {"item": {"big": 1}, "_ansible_item_label": "a"})).item == "a"
    assert read_event(raw_event("runner_item_on_ok", {"word": 3, "ansible_loop_var": "word"})).item == "3"


@pytest.mark.parametrize("raw", [{}, {"event": None, "event_data": None}, {"event_data": {"res": "text", "task": 3}}])
def test_malformed_event_is_read(raw: dict[str, Any]) -> None:
    assert read_event(raw).message == ""


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "no such file"}, "no such file"),
        ({"msg": "Task failed: no such file"}, "no such file"),
        ({"msg": ["a", "b"]}, '["a", "b"]'),
        ({"msg": "non-zero return code", "rc": 3, "stderr": "one\ntwo\n"}, "non-zero return code 3: one | two"),
        ({"msg": "non-zero return code", "rc": 3, "stderr": "", "stdout": "out"}, "non-zero return code 3: out"),
        ({"msg": "non-zero return code", "rc": 3}, "non-zero return code 3"),
        (
            {"msg": "MODULE FAILURE", "module_stderr": "Traceback\n  at\nKeyError: 'x'\n"},
            "MODULE FAILURE: Traceback | at | KeyError: 'x'",
        ),
        ({"msg": "", "module_stderr": "x"}, "the module crashed: x"),
        ({"exception": "Traceback\nValueError: y"}, "Traceback | ValueError: y"),
        ({"reason": "cannot load file"}, "cannot load file"),
        ({}, ""),
    ],
)
def test_message_is_the_most_useful_text(result: dict[str, Any], message: str) -> None:
    assert result_message(result) == message


def test_first_failed_item_of_a_loop_is_quoted() -> None:
    results = [{"msg": "fine"}, {"failed": True, "msg": "first"}, {"failed": True, "msg": "second"}]
    assert result_message({"msg": "One or more items failed", "results": results}) == "first"


def test_censored_item_is_not_quoted() -> None:
    assert result_message({"msg": "All items failed", "results": [{"failed": True, "censored": "x"}]}) == HIDDEN


def test_conditions_that_k8s_status_has_set_are_kept() -> None:
    target = {"api_version": "example.com/v1", "kind": "Thing", "namespace": "default", "name": "one"}
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "message": "fine", "lastHeartbeatTime": None}
    kept = {"type": "Ready", "status": "True", "reason": "Serving"}
    for arguments in ({"conditions": [ready]}, {"conditions": None, "status": {"conditions": [ready]}}):
        raw = {
            "event": "runner_on_ok",
            "event_data": {
                "task_action": "operator_sdk.util.k8s_status",
                "res": {"changed": False, "invocation": {"module_args": target | arguments}},
            },
        }
        assert read_event(raw).written == target | {"conditions": [kept]}
        assert read_event(raw | {"event": "runner_on_failed"}).written is None


@pytest.mark.parametrize(
    "head",
    ["fatal: [localhost]: FAILED! => ", "failed: [localhost] (item={'a': 1}) => ", "fatal: [h -> i]: UNREACHABLE! => "],
)
@pytest.mark.parametrize("indent", [None, 4])
def test_dropped_result_is_read_from_the_printed_one(head: str, indent: int | None) -> None:
    printed = json.dumps({"msg": "non-zero return code", "rc": 3, "stderr": "no => {coffee"}, indent=indent)
    lines = [f"\x1b[0;31m{line}\x1b[0m\r" for line in f"[ERROR]: Task failed\n{head}{printed}\n...ignoring".split("\n")]
    raw = raw_event("runner_on_failed") | {"stdout": "\n".join(lines)}
    assert read_event(raw).message == "non-zero return code 3: no => {coffee"
    assert read_event(raw | {"event": "runner_on_ok"}).message == ""


@pytest.mark.parametrize(
    "result", ['{"censored": "the output has been hidden", "msg": "s3cret"}', '{"msg": "s3cret', "s3cret"]
)
def test_printed_result_reveals_nothing_that_is_hidden_or_broken(result: str) -> None:
    raw = raw_event("runner_on_failed") | {"stdout": f"fatal: [localhost]: FAILED! => {result}"}
    assert "s3cret" not in read_event(raw).message


LARGE = {"text": "x" * 200_000, "list": ["y"] * 60_000, "mapping": {"z" * 200_000: 1}, "letters": "é" * 300}
FIELDS = ("task", "name", "task_uuid", "task_path", "task_action", "host", "start", "artifact_data", "ok")
CONDITIONS = [{"type": "t" * 3000, "status": "True"}] * 3000
RESULTS: dict[str, dict[str, Any]] = {
    "message": {"msg": "m" * 200_000},
    "item": {"item": "i" * 200_000},
    "requeue": {"period": "p" * 200_000},
    "conditions": {"invocation": {"module_args": {"conditions": CONDITIONS, "name": "n" * 200_000}}},
}
ACTIONS = ("command", "debug", "operator_sdk.util.requeue_after", "operator_sdk.util.k8s_status")


@given(
    st.fixed_dictionaries({name: st.sampled_from(sorted(LARGE)) for name in FIELDS}),
    st.sampled_from(["runner_on_ok", "playbook_on_task_start", "playbook_on_stats", "runner_item_on_failed"]),
    st.sampled_from(sorted(RESULTS)),
    st.sampled_from(ACTIONS),
)
def test_any_event_is_small(data: dict[str, str], event: str, result: str, action: str) -> None:
    """An event is logged, recorded, and read by an operator that other objects need, too."""
    raw = raw_event(event, RESULTS[result])
    raw["event_data"] |= {field: LARGE[size] for field, size in data.items()} | {"task_action": action}
    found = read_event(raw | {"stdout": "o" * 200_000, "created": "c" * 200_000})
    assert len(found.to_json()) <= (RECAP_LIMIT_BYTES if event == "playbook_on_stats" else 100_000)
    line = log_line(found, LogEvents.EVERYTHING)
    assert line is not None
    assert len(json.dumps(line)) < 32_000


@pytest.mark.parametrize(
    "recap",
    [{"artifact_data": {"report": "x" * 70_000_000}}, {"ok": {f"host-{number}": 1 for number in range(100_000)}}],
    ids=["statistics", "hosts"],
)
def test_run_that_reports_too_much_fails_with_the_limit(recap: dict[str, Any]) -> None:
    builder = OutcomeBuilder()
    builder.add(read_event(raw_event("playbook_on_stats", **recap)))
    summary = builder.finish(Outcome("successful", 0))
    assert summary.status == "failed"
    assert "a run may report at most 1Mi" in summary.message
    assert summary.stats == {}
