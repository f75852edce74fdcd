import pytest

from tests.e2e.environment import Environment, environment_of

COMPLETE = {"KUBECONFIG": "/some/file", "LOAD": "kind load docker-image", "RUN_IN": "env"}


@pytest.mark.parametrize("missing", COMPLETE)
def test_a_variable_that_is_missing_is_told_in_one_line(missing: str) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*set {missing}: [^\n]*$"):
        environment_of({**COMPLETE, missing: ""})


def test_commands_are_words() -> None:
    assert environment_of(COMPLETE) == Environment("/some/file", ("kind", "load", "docker-image"), ("env",))
