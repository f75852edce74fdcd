import argparse

import pytest

from rolecall.cli.parsing import Parser


def parser() -> Parser:
    """Return the parser of a program with commands in two levels."""
    top = Parser(prog="choir")
    commands = top.add_subparsers(metavar="COMMAND")
    sing = commands.add_parser("sing")
    sing.add_argument("--loudly", action="store_true")
    sing.set_defaults(handler="sing")
    call = commands.add_parser("call", usage="choir call [--loudly] -- COMMAND [ARGUMENT ...]")
    call.add_argument("--loudly", action="store_true")
    call.add_argument("command", nargs="+")
    call.set_defaults(handler="call")
    books = commands.add_parser("books").add_subparsers(metavar="COMMAND")
    books.add_parser("open").set_defaults(handler="open")
    return top


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Parse words that are refused with exit code 2; return the first and the last line of what is said."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_command(words)
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    return lines[0], lines[-1]


def test_a_command_has_its_handler() -> None:
    options: argparse.Namespace = parser().parse_command(["sing", "--loudly"])
    assert (options.handler, options.loudly) == ("sing", True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sign"], "choir: error: unknown command: 'sign'; did you mean sing?"),
        (["dance"], "choir: error: unknown command: 'dance'; expected one of sing, call, books"),
        (["books", "opne"], "choir books: error: unknown command: 'opne'; did you mean open?"),
        (["sing", "--loudlier=1"], "choir sing: error: unknown flag: --loudlier; did you mean --loudly?"),
        (["sing", "--red"], "choir sing: error: unknown flag: --red"),
        (["sing", "--loud"], "choir sing: error: unknown flag: --loud; did you mean --loudly?"),
        (["call", "ls", "-l"], "choir call: error: unknown flag: -l; put the command's flags after --"),
        (["sing", "this"], "choir sing: error: unexpected argument: 'this'"),
    ],
)
def test_a_mistyped_word_is_answered_by_its_command_with_the_nearest_one(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, last = refused(*words, capsys=capsys)
    assert usage.startswith(f"usage: {told.split(':', maxsplit=1)[0]}")
    assert last == told


@pytest.mark.parametrize(("words", "program"), [([], "choir"), (["books"], "choir books")])
def test_a_command_line_that_ends_too_early_gets_the_help(
    words: list[str], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, _ = refused(*words, capsys=capsys)
    assert usage == f"usage: {program} [-h] COMMAND ..."
