from typing import Any

import pytest

from rolecall.runner.runs.events import HIDDEN, result_message


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
def test_the_message_says_what_went_wrong(result: dict[str, Any], message: str) -> None:
    assert result_message(result) == message


def test_of_a_loop_the_first_item_that_failed_is_quoted() -> None:
    results = [{"msg": "fine"}, {"failed": True, "msg": "first"}, {"failed": True, "msg": "second"}]
    assert result_message({"msg": "One or more items failed", "results": results}) == "first"


def test_a_censored_item_is_not_quoted() -> None:
    assert result_message({"msg": "All items failed", "results": [{"failed": True, "censored": "x"}]}) == HIDDEN
