"""What is drawn: the right texts, no line wider than the terminal, and nothing but texts."""

from dataclasses import replace

import pytest

from rolecall.page.views import Query, State
from rolecall.top.frame import Facts, Size, View, frame, printed
from rolecall.top.screen import Choice, Page, Place, Screen
from tests.unit.top.views import KIND, NOW, objects, one_object, one_run, row

URL = "http://127.0.0.1:8090"
LONG = "x" * 300
WIDE = "漢字\N{COMBINING ACUTE ACCENT}" * 100
MARKUP = "[bold red]x[/bold red] :smile:"


def drawn(view: View | None, size: Size, screen: Screen | None = None, trouble: str = "") -> list[str]:
    return [text.plain for text in frame(screen or Screen.of(Query()), Facts(URL, view, trouble, NOW), size)]


def at(page: Page, number: int = 0) -> Screen:
    screen = Screen.of(Query())
    return Screen(screen.query, (*screen.places, Place(page, "/x", "", number)))


def test_a_list_fits_in_eighty_columns() -> None:
    view = objects(row("one"), row("two", State.FAILED, "its back-off after 2 failures in a row"))
    assert drawn(view, Size(80, 9)) == [
        "rolecall 1.2.3  http://127.0.0.1:8090  1 of 4 runs now  This replica runs the r…",
        "2 objects of Foo  ✕ failed 1  ✓ succeeded 1",
        "Shown: 2, by name",
        "STATE        OBJECT       LAST RUN  TOOK  WHY                 WAITS FOR",
        "✓ succeeded  default/one  30 s ago  1.2s  spec.size (genera…  in 10 min: its ne…",
        "✕ failed     default/two  30 s ago  1.2s  spec.size (genera…  in 10 min: its ba…",
        "",
        "",
        "Enter open  w last run  / search  f state  s order  ? keys  q quit",
    ]


@pytest.mark.parametrize("width", [1, 20, 80, 120])
@pytest.mark.parametrize("text", ["plain", LONG, WIDE, MARKUP, "many\nlines\n" * 3])
def test_no_line_is_wider_than_the_terminal(width: int, text: str) -> None:
    views: list[View] = [objects(row(text, text=text)), one_object(text=text), one_run(text=text)]
    for view in views:
        lines = frame(Screen.of(Query()), Facts(URL, view, text, NOW), Size(width, 24))
        assert len(lines) == 24
        assert max(line.cell_len for line in lines) <= width
        assert not [line for line in lines if "\n" in line.plain]


def test_in_eighty_columns_other_columns_go_before_names_get_shorter() -> None:
    view = objects(row("25-characters-of-a-name-x"), row("25-characters-of-a-name-y"))
    lines = drawn(replace(view, kinds=view.kinds * 2), Size(80, 9))
    assert lines[3].split() == ["STATE", "KIND", "OBJECT", "LAST", "RUN", "WHY"]
    assert lines[4].startswith("✓ succeeded  Foo   default/25-characters-of-a-name-x  30 s ago  spec.size")
    wide = drawn(replace(view, kinds=view.kinds * 2), Size(120, 9))
    assert "WAITS FOR" in wide[3]


def test_markup_stays_text() -> None:
    view = objects(row(MARKUP))
    (line,) = [each for each in frame(Screen.of(Query()), Facts(URL, view, "", NOW), Size(200, 9)) if "x" in each.plain]
    assert MARKUP in line.plain
    assert not [span for span in line.spans if span.style == "bold red"]


def test_a_run_is_a_waterfall_with_diffs_below_the_requests() -> None:
    text = drawn(one_run(text="boom"), Size(80, 30), at(Page.RUN))
    task = next(line for line in text if "Write boom" in line)
    request = next(line for line in text if "configmaps" in line)
    assert task.index("━") < request.index("━")
    assert task.count("━") > request.count("━")
    assert (task.endswith("500ms"), request.endswith("100ms")) == (True, True)
    assert "    +  size: '2'" in text
    assert "  boom" in text


def test_a_long_message_is_shown_to_its_end() -> None:
    text = drawn(one_run(text="a" * 100 + "the end"), Size(80, 40), at(Page.RUN))
    assert any(line.endswith("the end") for line in text)


def test_a_long_page_is_scrolled_to_what_is_chosen() -> None:
    view = one_run(tasks=50)
    assert drawn(view, Size(80, 24), at(Page.RUN))[4] != drawn(view, Size(80, 24), at(Page.RUN, 100))[4]
    assert drawn(view, Size(80, 24), at(Page.RUN, 10**6))[-2] == "conditions: []"
    many = objects(*(row(f"foo-{number:02}") for number in range(90)))
    assert "foo-89" not in "".join(drawn(many, Size(80, 24)))
    place = Place(Page.OBJECTS, "/", "", 89)
    assert "foo-89" in "".join(drawn(many, Size(80, 24), Screen(Query(), (place,))))


def test_what_is_wrong_stands_in_the_header_above_what_was_seen_last() -> None:
    lines = drawn(objects(row()), Size(80, 24), trouble="Last answer 10 s ago, trying again: gone")
    assert lines[1] == "Last answer 10 s ago, trying again: gone"
    assert any("default/one" in line for line in lines)


def test_without_a_terminal_all_lines_are_printed_and_what_is_left_is_said() -> None:
    view = objects(*(row(f"foo-{number}") for number in range(60)), found=200, pages=4)
    lines = [text.plain for text in printed(URL, view, 200, NOW)]
    assert sum("default/foo-" in line for line in lines) == 60
    assert lines[-1].startswith("140 more: choose with --kind")


def test_what_is_asked_for_is_said() -> None:
    query = Query(kind=KIND, namespace="ns", state="failed", text="oo", sort="recent", page=2)
    text = "\n".join(drawn(objects(row(), query=query, found=150, pages=2), Size(160, 9)))
    assert f"Shown: 150, kind {KIND}, namespace ns, failed, with “oo”, the last run first, page 2 of 2" in text


def test_choices_have_ids_of_their_own() -> None:
    from rolecall.top.frame import body_of  # noqa: PLC0415

    choices = body_of(at(Page.OBJECT), Facts(URL, one_object(runs=20), "", NOW), Size(80, 24)).choices
    assert len({choice.ident for choice in choices}) == len(choices)
    assert {type(choice) for choice in choices} == {Choice}
