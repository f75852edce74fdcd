from typing import Any

import pytest

from rolecall.workbench.project.argument_specs import check_arguments

TYPES = {"int": int, "str": str, "list": list}


def complaints(**option: Any) -> list[str]:
    """Return the description of one option."""
    specs = {"main": {"short_description": "x", "options": {"size": option}}}
    return [message.removeprefix("argument_specs.main.options.size") for _, message in check_arguments(specs, TYPES)]


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"type": "int", "default": "5", "choices": [5, 6]},
        {"type": "list", "elements": "int", "default": [1], "choices": [1, 2]},
        {"default": "{{ other }}", "choices": ["a"]},
        {"type": "int", "required": True, "description": ["a", "b"]},
        {"apply_defaults": "true", "options": {"a": {}}},
        {"apply_defaults": True, "options": {"a": {}}},
        {"apply_defaults": False, "options": {"a": {}}},
        {"options": {"a": {}}, "required_if": [["a", "x", ["b"], True]], "required_by": {"a": "b"}},
    ],
)
def test_an_argument_that_makes_sense_is_fine(option: dict[str, Any]) -> None:
    assert complaints(**option) == []


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"type": "integer"}, ": type: expected one of int, list, str, found 'integer'"),
        ({"type": "list", "elements": "x"}, ": elements: expected one of int, list, str, found 'x'"),
        ({"type": "int", "elements": "str"}, ": elements: only valid for the type list, found the type 'int'"),
        ({"choices": "a"}, ": choices: expected a list with values, found 'a'"),
        ({"choices": [True, "no"]}, ": choices: expected values of type str, found True"),
        ({"type": "list", "elements": "int", "choices": ["1"]}, ": choices: expected values of type int, found '1'"),
        ({"fallback": ["env", ["X"]]}, ": fallback: only modules can have it: Ansible fails in a role"),
        (
            {"apply_defaults": "false", "options": {"a": {}}},
            ": apply_defaults: expected \"true\", found 'false': Ansible takes any other string as true too",
        ),
        (
            {"options": {"a": {}}, "required_together": ["a"]},
            ".required_together: expected a list of lists of options, found ['a']",
        ),
        (
            {"options": {"a": {}}, "required_if": [["a", 1, "b"]]},
            ".required_if: expected a list of lists [option, value, [options]], found [['a', 1, 'b']]",
        ),
        ({"type": "int", "default": "many"}, ": default: expected a value of type int, found 'many'"),
        ({"default": "c", "choices": ["a", "b"]}, ": default: expected one of 'a', 'b', found 'c'"),
        ({"default": "c", "required": True}, ": default: Ansible fails if an argument is required and has a default"),
        ({"typ": "int"}, ".typ: unknown key (ignored); did you mean 'type'?"),
        ({"type": "list", "options": {"a": {"type": 1}}}, ".options.a: type: expected one of int, list, str, found 1"),
        ({"options": []}, ".options: expected a mapping, found []"),
    ],
)
def test_contradictory_option_is_reported(option: dict[str, Any], told: str) -> None:
    assert complaints(**option) == [told]


@pytest.mark.parametrize("specs", [None, [], {"main": None}, {"main": {"options": {"size": "int"}}}])
def test_argument_specs_that_are_no_mapping_are_reported(specs: object) -> None:
    [(_, message)] = check_arguments(specs, TYPES)
    assert "expected a mapping" in message
