import pytest

from tests.guides import Step, steps
from tests.outcomes import done, masked

PAGE = """
```console
$ first
one line
…
another line
$ second
```
"""


def test_a_page_is_read_as_commands_with_the_lines_that_it_shows() -> None:
    assert steps(PAGE) == [Step("first", ("one line", "…", "another line")), Step("second")]


@pytest.mark.parametrize(
    ("shown", "code", "printed", "is_as_shown"),
    [
        ((), 0, "anything", True),
        ((), 1, "", False),
        (("a line", "…"), 0, "before\na line\nafter", True),
        (("a line",), 0, "a line more", False),
        (("Ready after 3s",), 0, "Ready after 0.5s", True),
        (("Ready after 3s",), 0, "Ready after 1m5.6s", True),
        (("Ready after 3s",), 0, "Ready after 1h0m2s", True),
        (("Applied 11 definitions",), 0, "Applied 13 definitions", False),
        (('The Website "hello" is invalid:',), 1, 'The Website "hello" is invalid:', True),
        (('The Website "hello" is invalid:',), 0, 'The Website "hello" is invalid:', False),
    ],
)
def test_a_step_is_as_shown_when_it_ends_and_prints_as_the_page_says(
    shown: tuple[str, ...], code: int, printed: str, *, is_as_shown: bool
) -> None:
    assert done(Step("command", shown), code, printed).is_as_shown is is_as_shown


def test_varying_parts_of_an_output_are_ignored() -> None:
    one = "pod/hello-78bdb89649-4j7gc   1/1   Running   0   3s   https://127.0.0.1:26189"
    assert masked(one) == masked("pod/hello-66bdb89649-8htn7 1/1 Running 0 12s https://127.0.0.1:1234")
    assert masked(one) != masked("pod/hello-78bdb89649-4j7gc   0/1   Running   0   3s   https://127.0.0.1:26189")
