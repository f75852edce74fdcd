"""An end state equals a baseline up to a consistent renaming of the values that differ between uninterrupted runs."""

from datetime import UTC, datetime, timedelta

import pytest

from rolecall.workbench.comparison.clocks import Clocks
from rolecall.workbench.comparison.end_states import Baseline, Difference, EndState, path_text
from tests.unit.workbench.comparison.end_objects import SECRET, config_map, object_of, state

STARTED = datetime(2026, 11, 24, 12, tzinfo=UTC)
LATER = STARTED + timedelta(hours=1)
MUCH_LATER = STARTED + timedelta(hours=5)
TOLERANCE = 10.0


def differences(one: EndState, two: EndState, end: EndState) -> list[Difference]:
    """Return the differences of an end state from two that started earlier."""
    baseline = Baseline(one, two, Clocks(STARTED, LATER, TOLERANCE))
    return baseline.differences(end, Clocks(STARTED, MUCH_LATER, TOLERANCE), lambda text: text.replace("hide", "****"))


def test_equal_states_have_no_difference() -> None:
    one = state(config_map(text="x", number=3, items=[], nested={"a": [1, {"b": None}]}))
    assert differences(one, one, one) == []


def test_changed_added_and_removed_values_are_reported_with_their_paths() -> None:
    one = state(config_map(kept="x", changed="x", removed="hide me", items=[{"a": 1}]))
    end = state(config_map(kept="x", changed="y", added=True, items=[{"a": 2}]))
    assert differences(one, one, end) == [
        Difference("ConfigMap ns/a", "data.changed", "x", "y"),
        Difference("ConfigMap ns/a", "data.removed", "**** me", ""),
        Difference("ConfigMap ns/a", "data.items[0].a", "1", "2"),
        Difference("ConfigMap ns/a", "data.added", "", "true"),
    ]


def test_equal_values_of_another_type_differ() -> None:
    one = state(config_map(flag=True))
    assert len(differences(one, one, state(config_map(flag=1)))) == 1


def test_missing_and_additional_objects_are_reported() -> None:
    one = state(config_map("a"), config_map("b"))
    assert differences(one, one, state(config_map("a"), config_map("c"))) == [
        Difference("ConfigMap ns/b", found="missing"),
        Difference("ConfigMap ns/c", found="additional"),
    ]


def test_objects_of_only_one_uninterrupted_run_are_not_compared() -> None:
    one, two = state(config_map("a"), object_of(SECRET, "s")), state(config_map("a"))
    baseline = Baseline(one, two, Clocks(STARTED, LATER, TOLERANCE))
    assert baseline.unstable == ["Secret ns/s"]
    assert differences(one, two, one) == []
    assert differences(one, two, two) == []


def test_random_value_may_have_another_value_everywhere() -> None:
    def end(made: str, used: str) -> EndState:
        return state(config_map("a", password=made), config_map("b", url=f"https://user:{used}@host"))

    one, two = end("alpha1", "alpha1"), end("bravo2", "bravo2")
    assert differences(one, two, end("delta3", "delta3")) == []
    [found] = differences(one, two, end("delta3", "gamma4"))
    assert found == Difference(
        "ConfigMap ns/b", "data.url", "the value in ConfigMap ns/a: data.password", "another value"
    )


def test_random_value_must_keep_the_text_around_it() -> None:
    one, two = state(config_map(url="http://alpha1/x")), state(config_map(url="http://bravo2/x"))
    assert differences(one, two, state(config_map(url="http://delta3/x"))) == []
    assert differences(one, two, state(config_map(url="https://delta3/x"))) == [
        Difference("ConfigMap ns/a", "data.url", "http://alpha1/x", "https://delta3/x")
    ]


def test_list_whose_length_differs_between_uninterrupted_runs_is_compared_as_a_text() -> None:
    one, two = state(config_map(items=["a"])), state(config_map(items=["a", "b"]))
    assert differences(one, two, state(config_map(items=["a", "c", "d"]))) == []
    assert len(differences(one, two, state(config_map(items=["b"])))) == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2026-11-24T17:00:03Z", 0),
        ("2026-11-24T12:00:04Z", 0),
        ("2026-11-24T17:30:00Z", 1),
        ("never", 1),
    ],
)
def test_times_are_compared_by_their_distance_from_the_start(text: str, count: int) -> None:
    one, two = state(config_map(at="2026-11-24T12:00:02Z")), state(config_map(at="2026-11-24T13:00:02Z"))
    assert len(differences(one, two, state(config_map(at=text)))) == count


def test_generated_object_is_paired_by_its_content() -> None:
    def end(*suffixes: str) -> EndState:
        made = zip(suffixes, ("first", "second"), strict=True)
        return state(*(config_map(f"job-{suffix}", "job-", text=text) for suffix, text in made))

    one, two = end("aaaaa", "bbbbb"), end("ddddd", "ccccc")
    assert differences(one, two, end("zzzzz", "yyyyy")) == []
    left = state(*end("zzzzz", "yyyyy").items(), config_map("job-xxxxx", "job-", text="first"))
    assert differences(one, two, left) == [Difference("ConfigMap ns/job-xxxxx", found="additional")]
    lost = state(config_map("job-zzzzz", "job-", text="first"))
    assert differences(one, two, lost) == [Difference("ConfigMap ns/job-bbbbb, or one like it", found="missing")]


def test_values_of_a_secret_are_not_displayed() -> None:
    one = state(object_of(SECRET, "s", data={"password": "alpha"}, type="Opaque"))
    end = state(object_of(SECRET, "s", data={"password": "bravo"}, type="Other"))
    assert differences(one, one, end) == [
        Difference("Secret ns/s", "data.password", "(sensitive)", "(sensitive), another one"),
        Difference("Secret ns/s", "type", "Opaque", "Other"),
    ]


def test_path_is_displayed_with_indexes_in_brackets() -> None:
    assert path_text(("spec", "containers", 0, "env")) == "spec.containers[0].env"
    assert path_text(()) == ""
