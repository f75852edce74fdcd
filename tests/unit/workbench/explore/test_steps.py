"""A walk makes each edit directly from the first spec, and goes back before it continues from what is switched off."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.explore.edits import Edit, Spec, edits_of, schema_of, switches_off
from rolecall.workbench.explore.steps import Step, Steps
from tests.unit.workbench.explore.test_edits import SPECS

SEEDS = range(10)
ON_AND_OFF = st.sampled_from(
    [
        (True, False),
        (3, 0),
        ("x", ""),
        ("x", "none"),
        ([1], []),
        ([1, 2], [2]),
        ({"a": 1}, {}),
        ({"a": {"b": True}}, {}),
    ]
)
NESTED: dict[str, dict[str, Any]] = {
    "field": {"tls": True, "size": 3},
    "mapping": {"tls": {"enabled": True, "level": 2}, "size": 3},
    "item": {"ports": [{"name": "a", "tls": {"on": True}}, {"name": "b", "debug": True}], "size": 3},
    "list": {"hosts": ["a", "b"], "size": 3},
    "map": {"labels": {"a": "b"}, "size": 3},
    "number": {"replicas": 2, "size": 3},
    "text": {"mode": "x", "size": 3},
}


class Made(NamedTuple):
    """A step of a walk, and the specs before and after it."""

    step: Step
    before: Spec
    after: Spec


def walk_of(
    spec: Spec,
    seed: int,
    *,
    limit: int = 10_000,
    is_rejected: Callable[[Spec], bool] = lambda _: False,
    fails: Callable[[Spec], bool] = lambda _: False,
) -> list[Made]:
    """Return the steps from a spec that changes something."""
    steps, made = Steps(spec, edits_of(schema_of(spec), spec), random.Random(seed)), list[Made]()  # noqa: S311 - no secret
    current = spec
    while len(made) < limit and (step := steps.next()) is not None:
        current = spec if step.resets else current
        after = None if is_rejected(step.wanted) else step.wanted
        if after is not None and after != current:
            made.append(Made(step, current, after))
        steps.record(step, after, fails=after is not None and fails(after))
        current = current if after is None else after
    return made


def direct_edits(made: list[Made], start: Spec) -> list[Edit]:
    """Return the edits that were made from the first spec."""
    return [each.step.edit for each in made if each.step.edit and each.before == start]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NESTED)
def test_each_edit_is_made_from_the_first_spec_within_two_steps_for_each(name: str, seed: int) -> None:
    spec = NESTED[name]
    edits = edits_of(schema_of(spec), spec)
    found = direct_edits(walk_of(spec, seed, limit=2 * len(edits)), spec)
    assert [each for each in edits if each not in found] == []


@given(SPECS, st.integers())
def test_each_edit_of_any_spec_is_made_from_the_first_spec(spec: dict[str, Any], seed: int) -> None:
    edits = edits_of(schema_of(spec), spec)
    found = direct_edits(walk_of(spec, seed, limit=2 * len(edits)), spec)
    assert [each for each in edits if each not in found] == []


@given(SPECS, st.integers(), st.sampled_from([3, 5, 7, 1000]))
def test_no_edit_starts_from_a_spec_in_which_something_is_switched_off(
    spec: dict[str, Any], seed: int, share: int
) -> None:
    def is_chosen(each: Spec) -> bool:
        return each != spec and sum(map(ord, repr(each))) % share == 0

    for rejected, fails in ((is_chosen, lambda _: False), (lambda _: False, is_chosen)):
        made = walk_of(spec, seed, is_rejected=rejected, fails=fails)
        starts = [each.before for each in made if each.step.edit]
        assert [each for each in starts if switches_off(spec, each)] == []


@given(SPECS, st.integers())
def test_step_after_one_that_switches_something_off_goes_back(spec: dict[str, Any], seed: int) -> None:
    made = walk_of(spec, seed)
    for this, following in pairwise(made):
        if this.step.edit and switches_off(this.before, this.after):
            assert (following.step.edit, following.after) == (None, this.before)


@given(SPECS, st.integers())
def test_step_after_one_that_fails_goes_back(spec: dict[str, Any], seed: int) -> None:
    failing = {
        repr(each.after) for each in walk_of(spec, seed) if len(repr(each.after)) % 3 == 0 and each.after != spec
    }
    made = walk_of(spec, seed, fails=lambda each: repr(each) in failing)
    for this, following in pairwise(made):
        if this.step.edit and repr(this.after) in failing:
            assert (following.step.edit, following.after) == (None, this.before)


@given(SPECS, st.integers())
def test_each_edit_that_switches_something_on_is_reversed(spec: dict[str, Any], seed: int) -> None:
    edits = edits_of(schema_of(spec), spec)
    made = walk_of(spec, seed, limit=2 * len(edits))
    for this, following in pairwise(made):
        if this.step.edit in edits and this.before == spec and switches_off(this.after, spec):
            edits.remove(this.step.edit)
            assert (following.step.edit, following.after) == (None, spec)


@pytest.mark.parametrize("seed", SEEDS)
def test_options_are_on_together_after_each_was_tried_alone(seed: int) -> None:
    spec: dict[str, Any] = {"tls": False, "debug": False, "size": 3}
    specs = [each.before for each in walk_of(spec, seed) if each.step.edit]
    assert any(each["tls"] is True is each["debug"] for each in specs if {"tls", "debug"} <= each.keys())


@given(SPECS, st.integers())
def test_same_seed_makes_the_same_steps(spec: dict[str, Any], seed: int) -> None:
    assert walk_of(spec, seed) == walk_of(spec, seed)


@given(ON_AND_OFF)
def test_removal_and_empty_values_switch_off(pair: tuple[Any, Any]) -> None:
    before, after = pair
    assert switches_off(before, after)
    assert not switches_off(after, before)
    for wrap in (lambda each: {"a": each}, lambda each: [each], lambda each: [{"b": {"c": each}}]):
        assert switches_off(wrap(before), wrap(after))
    assert switches_off({"a": before}, {})
    assert not switches_off({}, {"a": before})


@given(SPECS)
def test_equal_specs_switch_nothing_off(spec: dict[str, Any]) -> None:
    assert not switches_off(spec, spec)
