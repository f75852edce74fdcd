import json
import subprocess
import sys
from typing import Any

import pytest

from rolecall.cli.go_runner_log import use_go_runner_wording

PROGRAM = """
from rolecall.cli.go_runner_log import use_go_runner_wording
from rolecall.cli.run import ansible_operator_program
from rolecall.system.logs import get_logger, configure
configure(ansible_operator_program().logs, use_go_runner_wording)
get_logger("run").error("Task failed", gvk="a/v1, Kind=B", task="Boom", path="p:1", reason="no")
get_logger("x").warning("Careful")
"""


def reworded(message: str, /, **keys: Any) -> dict[str, Any]:
    """Return a line in the words of the Go runner."""
    line = {"event": message, "level": "info", "logger": "run", **keys}
    return dict(use_go_runner_wording(None, "info", line))


@pytest.mark.parametrize(
    ("message", "keys", "expected"),
    [
        (
            "Task started",
            {"task": "A", "action": "k8s"},
            {"event": "[playbook task start]", "EventData.Name": "A", "action": "k8s"},
        ),
        (
            "Task started",
            {"task": "A", "full_name": "thing : A"},
            {"event": "[playbook task start]", "EventData.Name": "thing : A"},
        ),
        ("Task message", {"task": "A", "message": "hi"}, {"event": "[playbook debug]", "EventData.TaskArgs": "hi"}),
        (
            "Task failed",
            {"task": "A", "path": "p:1", "reason": "no"},
            {
                "event": "[playbook task failed]",
                "EventData.Task": "A",
                "EventData.FailedTaskPath": "p:1",
                "reason": "no",
            },
        ),
        ("Recap", {"stdout": "ok=1"}, {"event": "Ansible Task Status Event StdOut", "stdout": "ok=1"}),
    ],
)
def test_lines_of_tasks_are_those_that_tools_look_for(
    message: str, keys: dict[str, str], expected: dict[str, str]
) -> None:
    line = reworded(message, **keys)
    assert expected.items() <= line.items()
    assert line["logger"] == "logging_event_handler"


def test_the_end_of_a_play_is_told_in_the_words_that_tools_look_for() -> None:
    line = reworded("Run succeeded")
    assert (line["event"], line["logger"]) == ("Ansible-runner exited successfully", "runner")


def test_a_watched_kind_stands_in_three_options() -> None:
    line = reworded("Watching resource", gvk="cache.example.com/v1, Kind=Memcached", logger="operator")
    options = {name: line[f"Options.{name}"] for name in ("Group", "Version", "Kind")}
    assert options == {"Group": "cache.example.com", "Version": "v1", "Kind": "Memcached"}
    assert line["logger"] == "cmd"
    assert reworded("Watching resource", gvk="/v1, Kind=Secret")["Options.Group"] == ""


def test_a_watched_kind_of_dependents_has_the_go_runners_keys() -> None:
    line = reworded("Watching child resource", gvk="a/v1, Kind=B", dependent="/v1, Kind=Pod", logger="watch")
    assert (line["logger"], line["kind"], line["enqueue_kind"]) == ("proxy", "/v1, Kind=Pod", "a/v1, Kind=B")


def test_unwatched_kind_of_dependents_has_the_words_of_the_operator_sdk() -> None:
    line = reworded("Not watching a kind of dependents", dependent="/v1, Kind=Pod", logger="watch")
    assert (line["event"], line["logger"]) == ("Resource will not be watched/cached.", "proxy")
    assert line["GVK"] == "/v1, Kind=Pod"


def test_other_lines_keep_their_words() -> None:
    line = {"event": "Resource is terminated, skipping reconciliation", "level": "info", "logger": "reconciler"}
    assert use_go_runner_wording(None, "info", dict(line)) == line


def test_the_log_is_json_with_the_go_runners_levels_and_times() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    failed, careful = map(json.loads, done.stderr.splitlines())
    assert (failed["level"], failed["logger"], failed["msg"]) == (
        "error",
        "logging_event_handler",
        "[playbook task failed]",
    )
    assert (failed["gvk"], failed["EventData.Task"]) == ("a/v1, Kind=B", "Boom")
    assert len(failed["ts"]) == len("2026-01-01T00:00:00Z")
    assert careful["level"] == "warn"
