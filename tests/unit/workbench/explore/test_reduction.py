"""A walk is reduced to the fewest specs that still show its symptom."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.explore.edits import Change, Edit
from rolecall.workbench.explore.reduction import Walk, shortest

START: dict[str, Any] = {"size": 1}
EDIT = Edit("boolean", (Change(("tls",), value=True),))


async def test_edit_alone_is_enough_if_it_shows_the_symptom() -> None:
    walk = ({"size": 2}, {"size": 2, "tls": True})

    async def shows(tried: Walk) -> bool:
        return tried[-1].get("tls") is True

    assert await shortest(START, walk, EDIT, shows) == ({"size": 1, "tls": True},)


async def test_symptom_that_is_not_repeatable_has_no_walk() -> None:
    async def shows(_: Walk) -> bool:
        return False

    assert await shortest(START, ({"size": 2}, {"size": 3}), None, shows) == ()


async def test_return_keeps_the_spec_that_it_returns_from() -> None:
    on, other = {"size": 1, "tls": True}, {"size": 9}

    async def shows(tried: Walk) -> bool:
        return tried[-1] == START and on in tried[:-1]

    assert await shortest(START, (on, other, START), None, shows) == (on, START)


async def test_nothing_is_tried_after_the_first_try_if_the_time_is_over() -> None:
    tried: list[Walk] = []

    async def shows(walk: Walk) -> bool:
        tried.append(walk)
        return shown

    for shown in (True, False):
        walk = ({"size": 2}, {"size": 3}, {"size": 4})
        found = await shortest(START, walk, None, shows, lambda _tries: True)
        assert found == (({"size": 4},) if shown else ())
    assert tried == [({"size": 4},)] * 2


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), max_size=2), st.integers(0, 5))
async def test_walk_is_minimal_and_shows_the_symptom(numbers: list[int], needed: list[int], last: int) -> None:
    specs = tuple({"size": 10 + each} for each in (*numbers, *needed, last))

    async def shows(tried: Walk) -> bool:
        rest = iter(each["size"] for each in tried[:-1])
        return tried[-1]["size"] == 10 + last and all(10 + each in rest for each in needed)

    found = await shortest(START, specs, None, shows, lambda tries: tries >= 100)
    assert await shows(found)
    for index in range(len(found) - 1):
        assert not await shows((*found[:index], *found[index + 1 :]))
