from collections.abc import AsyncIterator
from typing import Any

from bench.observer import Observer, outcome_of


def widget(generation: int, status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "a", "generation": generation}, "status": status or {}}


def successful(completion: str, *, observed: int | None = None, value: str = "True") -> dict[str, Any]:
    conditions = [
        {"type": "Running", "ansibleResult": {"completion": completion}},
        {"type": "Successful", "status": value},
    ]
    return {"conditions": conditions} | ({} if observed is None else {"observedGeneration": observed})


def finishes(*seen: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Return the finished objects after these objects were observed in the seconds 1, 2, and so on."""
    found = Observer()
    for second, obj in enumerate(seen, 1):
        found.note(obj, second)
    return found.at


def test_a_new_object_is_finished_when_it_is_successful_for_the_first_time() -> None:
    done = successful("10:00", observed=1)
    assert finishes(widget(1), widget(1), widget(1, done), widget(1, done)) == {("a", 1): 3}


def test_the_status_of_the_generation_before_does_not_count_with_an_observed_generation() -> None:
    old, new = successful("10:00", observed=1), successful("10:01", observed=2)
    assert finishes(widget(2, old), widget(2, old), widget(2, new)) == {("a", 2): 3}


def test_the_status_of_the_generation_before_does_not_count_without_an_observed_generation() -> None:
    old, running, new = successful("10:00"), successful("10:00", value="False"), successful("10:01")
    assert finishes(widget(2, old), widget(2, running), widget(2, new)) == {("a", 2): 3}


def test_default_of_the_observed_generation_counts_as_a_missing_one() -> None:
    old, new = successful("10:00", observed=-1), successful("10:01", observed=-1)
    assert finishes(widget(2, old), widget(2, old), widget(2, new)) == {("a", 2): 3}


def test_a_late_status_of_the_generation_before_does_not_count() -> None:
    old, late = successful("10:00", observed=1), successful("10:01", observed=1)
    assert finishes(widget(2, old), widget(2, late)) == {}


def test_a_failure_is_no_finish() -> None:
    assert finishes(widget(1), widget(1, successful("10:00", observed=1, value="False"))) == {}


async def events(*objects: tuple[str, dict[str, Any]]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    for each in objects:
        yield each


async def test_several_objects_are_finished_when_the_last_one_is() -> None:
    observer, other = Observer(), {**widget(1), "metadata": {"name": "b", "generation": 1}}
    done = successful("10:00", observed=1)
    await observer.follow(
        events(("ADDED", widget(1)), ("ADDED", other), ("BOOKMARK", {}), ("MODIFIED", widget(1, done)))
    )
    assert observer.finished_at([("a", 1), ("b", 1)]) == 0
    await observer.follow(events(("MODIFIED", {**other, "status": done})))
    assert observer.finished_at([("a", 1), ("b", 1)]) == observer.at["b", 1] >= observer.at["a", 1]


def test_outcome_is_known_from_the_conditions_of_both_runners() -> None:
    def outcome(*conditions: dict[str, Any]) -> str:
        return outcome_of(widget(1, {"conditions": conditions}))

    assert outcome({"type": "Running", "status": "True", "reason": "Running"}) == ""
    assert outcome({"type": "Running", "status": "True", "reason": "Successful"}) == "Successful"
    failure = {"type": "Failure", "status": "True", "message": "no"}
    assert outcome({"type": "Running", "status": "False", "reason": "Failed"}, failure) == "Failed: no"
