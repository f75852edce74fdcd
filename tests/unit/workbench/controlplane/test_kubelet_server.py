from typing import Any

import pytest

from rolecall.workbench.controlplane.kubelet_server import (
    InvalidResponseError,
    Response,
    Target,
    all_responses,
    find_response,
)

MIGRATE = Target("web-1", "main", "command", ["bash", "-c", "app-manage migrate"])
LOG = Target("web-1", "main")
STATE = Target("web-1", "main", "state")
HTTP = Target("web-1", "", "port", port=80)


def config_map(text: str, name: str = "responses", key: str = "responses.yaml") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {key: text}}


def find(text: str, target: Target = MIGRATE) -> Response:
    return find_response(all_responses([config_map(text)]), target)


def test_command_without_response_succeeds_without_output() -> None:
    assert find_response([], MIGRATE) == Response(stdout="", stderr="", exitCode=0)
    assert find("[{command: psql, exitCode: 1}]") == Response()


@pytest.mark.parametrize(
    "conditions",
    ["", "command: migrate, ", "command: ^bash, ", "pod: web-., ", "container: main, pod: web-1, command: -c app, "],
)
def test_response_is_used_if_all_its_conditions_hold(conditions: str) -> None:
    assert find(f"[{{{conditions}stdout: yes!, exitCode: 3}}]").exitCode == 3


@pytest.mark.parametrize(
    "condition", ["command: ^migrate", "pod: web", "container: mai", "pod: web-1, container: init"]
)
def test_response_is_skipped_unless_all_its_conditions_hold(condition: str) -> None:
    assert find(f"[{{{condition}, exitCode: 3}}]").exitCode == 0


def test_first_response_is_used_in_the_order_of_names_keys_and_items() -> None:
    first = {"metadata": {"name": "a"}, "data": {"2": "[{exitCode: 3}]", "1": "[{exitCode: 1}, {exitCode: 2}]"}}
    second = config_map("[{exitCode: 4}]", "b")
    assert find_response(all_responses([second, first]), MIGRATE).exitCode == 1


def test_logs_and_commands_have_separate_responses() -> None:
    text = "[{exitCode: 1}, {pod: web-1, log: ready}]"
    assert find(text, LOG).log == "ready"
    assert find(text, MIGRATE).exitCode == 1
    assert find("[{exitCode: 1}]", LOG).log is None


def test_states_and_ports_have_separate_responses() -> None:
    text = "[{exitCode: 1}, {log: ready}, {container: main, state: Terminated, exitCode: 3}, {port: 81}, {port: 80}]"
    assert find(text, STATE) == Response(container="main", state="Terminated", exitCode=3)
    assert find(text, HTTP) == Response(port=80)
    assert find(text, MIGRATE) == Response(exitCode=1)
    assert find("[{exitCode: 1}, {log: ready}, {port: 81}]", STATE) == Response()
    assert find("[{exitCode: 1}, {log: ready}, {state: Running}, {port: 81}]", HTTP) == Response()


def test_config_map_without_data_has_no_responses() -> None:
    assert find_response(all_responses([{"metadata": {"name": "empty"}}]), MIGRATE) == Response()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected YAML"),
        ("command: x", "expected a list of responses"),
        ("", "expected a list of responses, found None"),
        ("[x]", "item 1: expected a response with any of pod, container, command"),
        ("[{stdout: a}, {exit: 1}]", "item 2: unknown key 'exit'"),
        ("[{exitCode: true}]", "item 1: exitCode: expected int, found True"),
        ("[{exitCode: 256}]", "item 1: exitCode: expected 0 to 255, found 256"),
        ("[{stdout: 1}]", "item 1: stdout: expected str, found 1"),
        ("[{command: '('}]", "item 1: command: expected a regular expression"),
        ("[{log: x, stdout: y}]", "item 1: with log, expected only pod, container, log; found stdout"),
        ("[{state: Waiting}]", "item 1: state: expected Running, Terminated, ImagePullBackOff, found 'Waiting'"),
        ("[{state: ''}]", "item 1: state: expected Running, Terminated, ImagePullBackOff, found ''"),
        ("[{state: Running, command: x}]", "item 1: with state, expected only"),
        ("[{port: 0}]", "item 1: port: expected 1 to 65535, found 0"),
        ("[{port: 80, container: main}]", "item 1: with port, expected only pod, targetPort, port; found container"),
        ("[{targetPort: 80}]", "item 1: with command, expected only"),
    ],
)
def test_invalid_response_is_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidResponseError) as failure:
        find(text)
    message = str(failure.value)
    assert message.startswith("ConfigMap 'responses', key 'responses.yaml'")
    assert problem in message
    assert "\n" not in message
