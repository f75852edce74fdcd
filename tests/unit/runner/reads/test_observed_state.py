import pytest

from rolecall.kube.references import GVK
from rolecall.runner.reads.observed_state import ABSENT, UNKNOWN, ReadChange, State, counts, version_of

A, B, C = b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"
WIDGET = GVK("example.com", "v1", "Widget")


@pytest.mark.parametrize(
    ("what", "states", "expected"),
    [
        ("older than what was seen", (State(4, A), State(5, B), State(5, B), None), False),
        ("newer, another content", (State(6, A), State(7, B), State(5, A), None), True),
        ("newer, the same content", (State(6, A), State(7, A), State(5, A), None), False),
        ("deleted", (State(6, A), State(7, ABSENT), State(5, A), None), True),
        ("came, and was not there", (State(6, ABSENT), State(7, A), State(5, ABSENT), None), True),
        ("gone, and was seen as gone", (State(5, A), State(7, ABSENT), State(5, ABSENT), None), False),
        ("came back in a break as it was before", (State(3, B), State(7, B), State(5, A), None), True),
        ("in a list, as before the break", (State(6, A), State(7, A), State(5), None), False),
        ("in a list, the watch was behind it", (State(4, A), State(7, A), State(5), None), True),
        ("in a first list, as it was seen", (State(UNKNOWN), State(7, A), State(5, A), None), False),
        ("in a first list, not as it was seen", (State(UNKNOWN), State(7, B), State(5, A), None), True),
        ("in a first list, seen in a list", (State(UNKNOWN), State(7, A), State(5), None), True),
        ("as the run left it", (State(5, A), State(9, C), State(5, A), State(7, C)), False),
        ("put back to what the run changed", (State(5, A), State(9, A), State(5, A), State(7, C)), True),
        ("changed after what the run left", (State(8, C), State(9, A), State(5, A), State(7, C)), True),
        ("nothing is known", (State(UNKNOWN), State(UNKNOWN), State(UNKNOWN), None), True),
        ("of no version, with another content", (State(UNKNOWN, A), State(UNKNOWN, B), State(5, A), None), True),
    ],
)
def test_change_counts_if_it_is_newer_and_differs_from_the_last_known_content(
    what: str, states: tuple[State, State, State, State | None], *, expected: bool
) -> None:
    before, after, seen, written = states
    change = ReadChange(WIDGET, b"key", before, after)
    assert counts(change, seen, written) is expected, what


@pytest.mark.parametrize(("text", "version"), [("12", 12), ("0", 0), ("", UNKNOWN), ("abc", UNKNOWN), ("²", UNKNOWN)])
def test_version_is_a_number_or_unknown(text: str, version: int) -> None:
    assert version_of(text) == version
