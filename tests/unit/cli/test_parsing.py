import argparse
from contextlib import suppress
from dataclasses import fields

import pytest
from structlog.testing import capture_logs

from rolecall.cli.flags import GROUPS, all_flags, parse_boolean
from rolecall.cli.parsing import (
    Parser,
    add_flags,
    ansible_debug_logs,
    apply_flags,
    given_flags,
    join_flag_values,
    watch_namespaces,
)
from rolecall.cli.run import ansible_operator_settings
from rolecall.runner.config.settings import Settings
from rolecall.system.logs import LogSettings


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


def parsed(*words: str) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, Settings(), LogSettings())
    return parser.parse_args(list(join_flag_values(words)))


@pytest.mark.parametrize(
    ("words", "one_each"),
    [
        (["--proxy-port", "1"], ["--proxy-port=1"]),
        (["--proxy-port=1"], ["--proxy-port=1"]),
        (["--ansible-args", "--vault-password-file x"], ["--ansible-args=--vault-password-file x"]),
        (["--ansible-args", "--warm"], ["--ansible-args=--warm"]),
        (["--leader-elect", "false"], ["--leader-elect=true", "false"]),
        (["--leader-elect=false"], ["--leader-elect=false"]),
        (["--proxy-port"], ["--proxy-port"]),
        (["--", "--warm"], ["--", "--warm"]),
        (["--unknown", "x"], ["--unknown", "x"]),
    ],
)
def test_a_flag_and_its_value_become_one_word_as_in_cobra(words: list[str], one_each: list[str]) -> None:
    assert list(join_flag_values(words)) == one_each


def test_every_flag_fills_a_setting_that_exists() -> None:
    for group in GROUPS:
        assert {flag.setting for flag in group.flags} <= {field.name for field in fields(group.settings_type)}


def test_the_processors_are_counted_once_however_many_flags_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count them takes reading the files of control groups, and every command has the flags of ``run``."""
    counted: list[int] = []

    def available_cpus() -> int:
        counted.append(2)
        return 2

    settings = Settings()
    monkeypatch.setattr("rolecall.runner.config.settings.available_cpus", available_cpus)
    add_flags(argparse.ArgumentParser(), settings, LogSettings())
    assert len(counted) == 1


@pytest.mark.parametrize("text", ["\uff11", "\u0661", "\uff11s", "-\uff11"])
def test_no_flag_accepts_digits_of_other_scripts(text: str) -> None:
    for flag in all_flags():
        with suppress(ValueError, argparse.ArgumentTypeError):
            assert not isinstance(flag.type.parse(text), int | float), flag.name


def test_no_two_flags_have_a_name_in_common() -> None:
    names = [flag.name for flag in all_flags()]
    assert len(names) == len(set(names))


def test_a_flag_with_a_successor_fills_the_same_setting() -> None:
    by_name = {flag.name: flag for flag in all_flags()}
    for flag in all_flags():
        if flag.replaced_by and flag.replaced_by != "nothing":
            assert by_name[flag.replaced_by].setting == flag.setting


@pytest.mark.parametrize("defaults", [Settings(), ansible_operator_settings()])
def test_without_flags_the_settings_are_the_defaults(defaults: Settings) -> None:
    assert apply_flags(defaults, parsed()) == defaults


def test_flags_fill_the_settings_of_their_group_only() -> None:
    options = parsed("--zap-log-level=error", "--proxy-port=1")
    assert apply_flags(LogSettings(), options) == LogSettings(level="error")
    assert apply_flags(Settings(), options) == Settings(proxy_port=1)


def test_given_option_is_known_even_if_it_is_the_default() -> None:
    assert [flag.name for flag in given_flags(parsed("--proxy-port=0"))] == ["proxy-port"]


@pytest.mark.parametrize(("text", "level"), [("1", "debug"), ("10", "debug"), ("panic", "panic"), ("INFO", "info")])
def test_a_level_is_a_word_or_a_number(text: str, level: str) -> None:
    assert apply_flags(LogSettings(), parsed(f"--zap-log-level={text}")).level == level


@pytest.mark.parametrize("text", ["0", "-1", "loud", "", "\uff11"])
def test_other_levels_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--zap-log-level={text}")
    assert f"found {text!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [(None, ()), ("", ()), (" ", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , ,b,", ("a", "b"))],
)
def test_watch_namespaces_are_separated_by_commas(text: str | None, namespaces: tuple[str, ...]) -> None:
    assert watch_namespaces({} if text is None else {"WATCH_NAMESPACE": text}) == namespaces


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("1", "t", "T", "true", "TRUE", "True")),
        *((text, False) for text in ("0", "f", "F", "false", "FALSE", "False")),
    ],
)
def test_booleans_have_the_spellings_of_go(text: str, *, value: bool) -> None:
    assert parse_boolean(text) is value
    assert ansible_debug_logs({"ANSIBLE_DEBUG_LOGS": text}) is value


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", "2"])
def test_other_spellings_are_not_booleans(text: str) -> None:
    with pytest.raises(ValueError, match=f"expected true or false, found {text!r}"):
        parse_boolean(text)


def test_invalid_boolean_is_logged_and_ignored() -> None:
    with capture_logs() as lines:
        assert ansible_debug_logs({}) is False
        assert ansible_debug_logs({"ANSIBLE_DEBUG_LOGS": "loud"}) is False
    [line] = lines
    assert (line["log_level"], line["envVar"]) == ("info", "ANSIBLE_DEBUG_LOGS")
