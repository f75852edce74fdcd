"""What keys do."""

from dataclasses import replace

import pytest

from rolecall.page.views import Query
from rolecall.top.screen import Around, Choice, Page, Place, Screen, number_of_choice, press

RUN = Place(Page.RUN, "/run")
A, B, C = (Choice(name, line, Place(Page.OBJECT, f"/{name}"), RUN) for line, name in enumerate("abc"))
AROUND = Around((A, B, C), height=2, pages=3)
START = Screen.of(Query())


def after(*keys: str, screen: Screen = START, around: Around = AROUND) -> Screen:
    for key in keys:
        screen = press(screen, key, around)
    return screen


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (("j",), "b"),
        (("down", "down", "down"), "c"),
        (("down", "k"), "a"),
        (("up",), "a"),
        (("page down",), "c"),
        (("G",), "c"),
        (("end", "home"), "a"),
    ],
)
def test_arrows_choose_a_line_and_stop_at_the_ends(keys: tuple[str, ...], chosen: str) -> None:
    assert after(*keys).place.chosen == chosen


def test_what_is_chosen_stays_so_when_the_order_changes() -> None:
    place = after("down").place
    assert number_of_choice(place, (C, A, B)) == 2
    assert number_of_choice(place, (C, A)) == 1
    assert number_of_choice(place, ()) == 0


def test_enter_opens_what_is_chosen_and_escape_goes_back_to_it() -> None:
    opened = after("down", "enter")
    assert (opened.place.page, opened.place.path) == (Page.OBJECT, "/b")
    for key in ("escape", "backspace", "q", "left"):
        back = press(opened, key, AROUND)
        assert (back.place.page, back.place.chosen, back.has_ended) == (Page.OBJECTS, "b", False)


def test_one_key_opens_the_last_run() -> None:
    assert after("w").place.path == "/run"
    assert after("w", around=Around((replace(A, run=None),))) == START


def test_what_cannot_be_opened_is_not() -> None:
    assert after("enter", around=Around((replace(A, opens=None),))) == START
    assert after("enter", around=Around()) == START


def test_only_q_in_the_list_ends() -> None:
    assert after("q").has_ended
    assert not after("escape", "backspace", "x").has_ended


def test_a_search_is_typed_and_asked_for() -> None:
    typed = after("/", "f", "q", "s", "backspace", " ", "x")
    assert (typed.typed, typed.query.text) == ("fq x", "")
    asked = press(typed, "enter", AROUND)
    assert (asked.typed, asked.query.text, asked.place.path) == (None, "fq x", "/?q=fq+x")
    assert press(typed, "escape", AROUND) == START
    assert press(typed, "up", AROUND) == typed


def test_a_new_question_starts_at_the_first_page() -> None:
    second = after("n")
    assert second.query.page == 2
    assert after("s", screen=second).query == Query(sort="recent")
    assert after("s", "s", screen=second).query == Query()
    assert after("f", screen=second).query == Query(state="running")
    assert after(*"fffffff").query == Query()


def test_pages_are_turned_as_far_as_there_are_any() -> None:
    assert after("n", "n", "n", "n").query.page == 3
    assert after("n", "p", "p").query.page == 1


def test_keys_of_the_list_do_nothing_elsewhere() -> None:
    opened = after("enter")
    assert after("/", "s", "f", "n", screen=opened) == opened


def test_any_key_leaves_the_help() -> None:
    assert after("?").shows_keys
    assert after("?", "q") == START
