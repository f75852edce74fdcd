from pathlib import Path
from typing import Any

import pytest

from rolecall.runner.runs.events import HIDDEN, read_event
from tests.unit.runner.runs.raw_events import raw_event


def test_nothing_of_a_censored_result_is_passed_on() -> None:
    raw = raw_event("runner_on_failed", {"censored": "hidden due to no_log", "msg": "s3cret", "item": "s3cret"})
    event = read_event(raw | {"stdout": "[ERROR]: Task failed: s3cret"})
    assert event.censored
    assert event.message == HIDDEN
    assert "s3cret" not in event.to_json()


def test_what_debug_shows_of_a_variable_is_the_message() -> None:
    result = {"size": {"a": 1}, "changed": False, "_ansible_verbose_always": True, "_ansible_no_log": False}
    assert (
        read_event(raw_event("runner_on_ok", result, task_action="ansible.builtin.debug")).message == 'size: {"a": 1}'
    )


def test_fields_are_taken_over() -> None:
    fields = {"ignore_errors": True, "start": "2027-01-15T08:00:00+00:00", "duration": 1.5, "task_path": "a:1"}
    raw = raw_event("runner_on_failed", {"msg": "x", "changed": True}, **fields)
    event = read_event(raw | {"stdout": "\x1b[0;31mfatal\x1b[0m"})
    assert (event.name, event.task, event.host, event.message) == ("runner_on_failed", "Do it", "localhost", "x")
    assert (event.changed, event.ignored, event.duration_seconds) == (True, True, 1.5)
    assert (event.task_path, event.stdout, event.started) == ("a:1", "fatal", "2027-01-15T08:00:00+00:00")


VALIDATION = "Validating arguments against arg spec 'main' - Sizes"


@pytest.mark.parametrize("file", ["argument_specs.yml", "argument_specs.yaml", "main.yml"])
def test_the_place_of_argument_validation_is_the_argument_specs_of_the_role(tmp_path: Path, file: str) -> None:
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
def test_any_other_task_keeps_its_place(task: str, context: dict[str, Any]) -> None:
    raw = raw_event("runner_on_ok", {"validate_args_context": context}, task=task, task_path="a.yml:3")
    assert read_event(raw).task_path == "a.yml:3"


@pytest.mark.parametrize(("name", "full_name"), [("thing : A", "thing : A"), ("A", ""), (None, "")])
def test_a_task_that_starts_has_its_name_with_the_role(name: str | None, full_name: str) -> None:
    event = read_event({"event": "playbook_on_task_start", "event_data": {"task": "A", "name": name}})
    assert (event.task, event.full_name) == ("A", full_name)


def test_the_recap_brings_counts_and_stats() -> None:
    raw = raw_event("playbook_on_stats", ok={"localhost": 2}, dark={}, artifact_data={"pods": 3})
    event = read_event(raw)
    assert event.counts["ok"] == {"localhost": 2}
    assert event.stats == {"pods": 3}


@pytest.mark.parametrize("action", ["operator_sdk.util.requeue_after", "rolecall.util.requeue_after", "requeue_after"])
def test_a_wish_to_run_again_is_passed_on(action: str) -> None:
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
def test_other_events_wish_nothing(raw: dict[str, Any]) -> None:
    assert read_event(raw).requeue is None


def test_a_wish_without_a_time_is_still_a_wish() -> None:
    raw = raw_event("runner_on_ok", {"censored": "x"}, task_action="rolecall.util.requeue_after")
    assert read_event(raw).requeue == {"period": None}


def test_the_label_of_an_item_is_preferred() -> None:
    assert read_event(raw_event("runner_item_on_ok", {"item": {"big": 1}, "_ansible_item_label": "a"})).item == "a"
    assert read_event(raw_event("runner_item_on_ok", {"word": 3, "ansible_loop_var": "word"})).item == "3"


@pytest.mark.parametrize("raw", [{}, {"event": None, "event_data": None}, {"event_data": {"res": "text", "task": 3}}])
def test_events_of_an_odd_shape_are_read(raw: dict[str, Any]) -> None:
    assert read_event(raw).message == ""
