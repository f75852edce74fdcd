import pytest
from structlog.testing import capture_logs

from rolecall.app.environment import debug_logs, namespaces_of, parse_boolean


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [(None, ()), ("", ()), (" ", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , ,b,", ("a", "b"))],
)
def test_the_environment_names_namespaces(text: str | None, namespaces: tuple[str, ...]) -> None:
    assert namespaces_of({} if text is None else {"WATCH_NAMESPACE": text}) == namespaces


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_these_are_true(text: str) -> None:
    assert parse_boolean(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_these_are_false(text: str) -> None:
    assert parse_boolean(text) is False


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", "2"])
def test_nothing_else_is_a_boolean(text: str) -> None:
    with pytest.raises(ValueError, match=f"expected true or false, found {text!r}"):
        parse_boolean(text)


@pytest.mark.parametrize(("environment", "wanted"), [({}, False), ({"ANSIBLE_DEBUG_LOGS": "T"}, True)])
def test_the_environment_asks_for_the_output_of_runs(environment: dict[str, str], *, wanted: bool) -> None:
    assert debug_logs(environment) is wanted


def test_what_is_no_boolean_is_told_of_and_left_out() -> None:
    with capture_logs() as lines:
        assert debug_logs({"ANSIBLE_DEBUG_LOGS": "loud"}) is False
    [line] = lines
    assert (line["log_level"], line["variable"]) == ("info", "ANSIBLE_DEBUG_LOGS")
