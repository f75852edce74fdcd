"""Values that differ between two runs become variables, which have one value in all their places."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.comparison.variables import Bindings, Template, Variables, leaves, shapes_that_differ


@pytest.mark.parametrize(
    ("one", "two", "template"),
    [
        ("alpha", "bravo", (0,)),
        ("name-alpha", "name-bravo", ("name-", 0)),
        ("alpha.svc", "bravo.svc", (0, ".svc")),
        ("a-x7k2p-b", "a-x9k2p-b", ("a-", 0, "-b")),
        ("prefix", "prefixes", (0,)),
        ("same", "same", ("same",)),
        ("-password:", "-of-another-run:", (0,)),
        ("a-password", "a-word", ("a-", 0)),
    ],
)
def test_differing_words_of_texts_become_a_variable(one: str, two: str, template: Template) -> None:
    assert Variables().add(one, two) == template


ADDRESSES = st.lists(st.sampled_from(["1", "96", "207"]), min_size=4, max_size=4).map(".".join)
UIDS = st.sampled_from([0, 1, 2**32, 2**48, 2**64, 2**80, 2**96]).map(lambda number: str(uuid.UUID(int=number)))


@given(
    values=st.lists(ADDRESSES, min_size=3, max_size=3) | st.lists(UIDS, min_size=3, max_size=3),
    around=st.sampled_from([("", ""), ("http://", ":80/"), ("at ", "."), ("a.", "-b"), ("1,", ",1"), ('["', '"]')]),
)
def test_any_address_or_uid_is_in_place_of_two_that_differ(values: list[str], around: tuple[str, str]) -> None:
    """Those two may have parts in common by chance."""
    one, two, other = (value.join(around) for value in values)
    if one != two:
        template = Variables().add(one, two)
        assert Bindings().bind(template, other, "here") is None
        assert Bindings().bind(template, f"x{other}", "here") == ("" if around[0] else None)


def test_known_value_is_found_in_longer_texts() -> None:
    variables = Variables()
    assert variables.add("alpha", "bravo") == (0,)
    assert variables.add("xalphay", "xbravoy") == ("x", 0, "y")
    assert variables.add("alpha-1-alpha", "bravo-2-bravo") == (0, "-", 1, "-", 0)


def test_short_known_value_is_found_as_a_whole_text_only() -> None:
    variables = Variables()
    assert variables.add("1", "2") == (0,)
    assert variables.add("1", "2") == (0,)
    assert variables.add("a1b", "a2b") == (1,)


def test_bindings_report_the_place_with_another_value() -> None:
    bindings = Bindings()
    assert bindings.bind((0,), "delta", "here") is None
    assert bindings.bind(("x-", 0), "x-delta", "there") is None
    assert bindings.bind(("x-", 0), "x-gamma", "there") == "here"
    assert bindings.bind(("x-", 0), "y-delta", "there") == ""


def test_copied_bindings_are_independent() -> None:
    bindings = Bindings()
    bindings.copy().bind((0,), "delta", "here")
    assert bindings.bind((0,), "gamma", "there") is None


def test_leaves_are_scalars_and_empty_collections() -> None:
    value = {"a": [1, {"b": "x"}], "c": {}, "d": {"e": None}}
    assert dict(leaves(value, frozenset())) == {("a", 0): 1, ("a", 1, "b"): "x", ("c",): {}, ("d", "e"): None}
    assert dict(leaves(value, frozenset({("a",)})))[("a",)] == [1, {"b": "x"}]


def test_shapes_differ_in_keys_lengths_and_types() -> None:
    one = {"same": [1], "keys": {"a": 1}, "lengths": [1], "types": {"x": [1]}}
    two = {"same": [2], "keys": {"b": 1}, "lengths": [1, 2], "types": {"x": 1}}
    assert list(shapes_that_differ(one, two)) == [("keys",), ("lengths",), ("types", "x")]
