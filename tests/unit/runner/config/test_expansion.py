import pytest

from rolecall.runner.config.yaml_reader import expand_variables

ENVIRONMENT = {"NAME": "web", "EMPTY": "", "A_1": "x", "_": "under"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a: $NAME", "a: web"),
        ("a: ${NAME}b", "a: webb"),
        ("$NAME$NAME", "webweb"),
        ("# $NAME", "# web"),
        ("[$EMPTY]", "[]"),
        ("$A_1-", "x-"),
        ("$_", "under"),
        ("$NAMES", "${NAMES}"),
        ("$unset", "${unset}"),
        ("${unset}", "${unset}"),
        ("${NAME:-x}", "${NAME:-x}"),
        ("$1 $$ $* $# $@ $! $? $-", "${1} ${$} ${*} ${#} ${@} ${!} ${?} ${-}"),
        ("$10", "${1}0"),
        ("a${}b", "ab"),
        ("a${b", "ab"),
        ("a$", "a$"),
        ("$.spec.x", "$.spec.x"),
        ("$ {NAME}", "$ {NAME}"),
        ("{{ NAME }}", "{{ NAME }}"),
    ],
)
def test_references_expand_as_in_the_go_runner(text: str, expanded: str) -> None:
    assert expand_variables(text, ENVIRONMENT) == expanded


def test_a_value_is_not_expanded_again() -> None:
    assert expand_variables("$A", {"A": "$B", "B": "no"}) == "$B"
