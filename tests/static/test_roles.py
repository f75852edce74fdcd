from typing import Any

import pytest

from rolecall.runner.runs.variables import snake_case
from tests.static.repository import BUILT_IN, ROLES, ROOT, action, role_file, schema, tasks, watches

TYPES = {"integer": "int", "string": "str", "boolean": "bool", "object": "dict", "array": "list"}
WAITING_ACTIONS = {"ansible.builtin.pause", "ansible.builtin.wait_for", "ansible.builtin.async_status"}
WAITING_KEYWORDS = {"until", "retries", "delay", "async", "poll"}

READING_TASKS = [
    pytest.param(task, id=task["name"])
    for role in ROLES
    for task in tasks(of=role)
    if action(task) == "kubernetes.core.k8s_info"
]
OF_OUR_KINDS = [(entry["role"], entry["kind"]) for entry in watches() if entry["kind"] not in BUILT_IN]


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_watched_and_described(role: str) -> None:
    assert role in {entry["role"] for entry in watches()}
    assert role_file(role, "meta/main.yml")["galaxy_info"]["role_name"] == role
    assert (ROOT / "roles" / role / "README.md").read_text().startswith(f"# {role}\n")


def as_argument(name: str, field: dict[str, Any], required: list[str]) -> dict[str, Any]:
    described = {"type": TYPES[field["type"]], "required": name in required}
    return described | ({"default": field["default"]} if "default" in field else {})


@pytest.mark.parametrize(("role", "kind"), OF_OUR_KINDS)
def test_the_arguments_of_a_role_are_the_spec_of_its_kind(role: str, kind: str) -> None:
    options = role_file(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    keys = ("type", "default")
    described = {
        name: {**{key: option[key] for key in keys if key in option}, "required": option.get("required", False)}
        for name, option in options.items()
    }
    spec = schema(kind)["properties"]["spec"]
    fields = spec["properties"].items()
    assert described == {snake_case(name): as_argument(name, field, spec["required"]) for name, field in fields}


@pytest.mark.parametrize("role", ROLES)
def test_the_defaults_of_a_role_are_those_of_its_arguments(role: str) -> None:
    options = role_file(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = {name: value for name, value in role_file(role, "defaults/main.yml").items() if name in options}
    assert defaults == {name: option["default"] for name, option in options.items() if "default" in option}


def arguments(task: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task's module; none when they are one text."""
    found = task[action(task)]
    return found if isinstance(found, dict) else {}


def test_every_module_is_named_in_full() -> None:
    assert [task["name"] for task in tasks() if action(task).count(".") != 2] == []


def test_no_task_waits() -> None:
    assert [task["name"] for task in tasks() if action(task) in WAITING_ACTIONS] == []
    assert [task["name"] for task in tasks() if WAITING_KEYWORDS & set(task)] == []
    assert [task["name"] for task in tasks() if arguments(task).get("wait")] == []


def test_no_task_configures_cluster_access() -> None:
    reached_by = {"host", "api_key", "kubeconfig", "context", "validate_certs", "username", "password"}
    assert [task["name"] for task in tasks() if reached_by & set(arguments(task))] == []


@pytest.mark.parametrize("task", READING_TASKS)
def test_unreadable_list_is_never_treated_as_empty(task: dict[str, Any]) -> None:
    assert ".api_found" in task["failed_when"]


@pytest.mark.parametrize("role", ROLES)
def test_everything_that_a_role_creates_is_controlled_by_its_object(role: str) -> None:
    variables = role_file(role, "vars/main.yml")
    manifests = [value for value in variables.values() if isinstance(value, dict) and "metadata" in value]
    for manifest in manifests:
        (reference,) = manifest["metadata"]["ownerReferences"]
        if isinstance(reference, str):
            reference = variables[reference.strip("{} ")]
        assert (reference["controller"], reference["blockOwnerDeletion"]) == (True, True)
        kinds = {
            (f"{entry['group']}/{entry['version']}", entry["kind"]) for entry in watches() if entry["role"] == role
        }
        assert (reference["apiVersion"], reference["kind"]) in kinds
