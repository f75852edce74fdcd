import pytest
from structlog.testing import capture_logs

from rolecall.kube.references import GVK
from rolecall.runner.config.environment import (
    ansible_debug_logs,
    ansible_verbosity,
    max_concurrent_reconciles,
    parse_boolean,
    watch_namespaces,
)

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")
DASHED = GVK("my-group.io", "v1", "Thing")
SECRET = GVK("", "v1", "Secret")


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [(None, ()), ("", ()), (" ", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , ,b,", ("a", "b"))],
)
def test_the_environment_names_namespaces(text: str | None, namespaces: tuple[str, ...]) -> None:
    assert watch_namespaces({} if text is None else {"WATCH_NAMESPACE": text}) == namespaces


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
    assert ansible_debug_logs(environment) is wanted


def test_what_is_no_boolean_is_told_of_and_left_out() -> None:
    with capture_logs() as lines:
        assert ansible_debug_logs({"ANSIBLE_DEBUG_LOGS": "loud"}) is False
    [line] = lines
    assert (line["log_level"], line["envVar"]) == ("info", "ANSIBLE_DEBUG_LOGS")


@pytest.mark.parametrize(
    ("gvk", "name"),
    [(MEMCACHED, "MEMCACHED_CACHE_EXAMPLE_COM"), (SECRET, "SECRET_"), (DASHED, "THING_MY-GROUP_IO")],
)
def test_a_variable_is_named_after_kind_and_group(gvk: GVK, name: str) -> None:
    assert max_concurrent_reconciles(gvk, {f"MAX_CONCURRENT_RECONCILES_{name}": "3"}) == 3
    assert ansible_verbosity(gvk, {f"ANSIBLE_VERBOSITY_{name}": "4"}) == 4


@pytest.mark.parametrize(("text", "workers"), [("1", 1), ("12", 12), ("+2", 2)])
def test_workers_are_a_number_from_one_on(text: str, workers: int) -> None:
    assert max_concurrent_reconciles(SECRET, {"MAX_CONCURRENT_RECONCILES_SECRET_": text}) == workers


@pytest.mark.parametrize("text", ["0", "-1", "", "two", "1.5", " 1", "1_0"])
def test_other_workers_leave_it_to_the_flag_and_are_told_of(text: str) -> None:
    with capture_logs() as lines:
        assert max_concurrent_reconciles(SECRET, {"MAX_CONCURRENT_RECONCILES_SECRET_": text}) is None
    assert [(line["log_level"], line["envVar"]) for line in lines] == [("info", "MAX_CONCURRENT_RECONCILES_SECRET_")]


@pytest.mark.parametrize(("text", "verbosity"), [("0", 0), ("7", 7), ("8", None), ("-1", None), ("loud", None)])
def test_verbosity_is_a_number_from_0_to_7(text: str, verbosity: int | None) -> None:
    assert ansible_verbosity(SECRET, {"ANSIBLE_VERBOSITY_SECRET_": text}) == verbosity


def test_without_variables_the_flags_decide() -> None:
    with capture_logs() as lines:
        assert (max_concurrent_reconciles(SECRET, {}), ansible_verbosity(SECRET, {})) == (None, None)
    assert lines == []


def test_the_old_name_of_workers_counts_only_without_the_new_one_and_is_told_of() -> None:
    with capture_logs() as lines:
        assert max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2"}) == 2
    assert [line["replacedBy"] for line in lines] == ["MAX_CONCURRENT_RECONCILES_SECRET_"]
    assert max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2", "MAX_CONCURRENT_RECONCILES_SECRET_": "3"}) == 3
    assert (
        max_concurrent_reconciles(SECRET, {"WORKER_SECRET_": "2", "MAX_CONCURRENT_RECONCILES_SECRET_": "many"}) is None
    )
