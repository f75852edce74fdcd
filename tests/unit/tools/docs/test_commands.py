import argparse

import pytest
from tools.docs.commands import arguments_of, command_block, defaults_block, parsers, synopsis


def parser() -> argparse.ArgumentParser:
    """Return a parser with an argument of each sort."""
    made = argparse.ArgumentParser(prog="sing")
    made.add_argument("--key", required=True, metavar="KEY", help="the key")
    made.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how (default: %(default)s)")
    made.add_argument("--loud", action="store_true", help="100 %% of it")
    made.add_argument("song", metavar="SONG", help="what to sing")
    made.add_argument("voice", nargs="?", metavar="VOICE", help="who sings (default: all of them)")
    return made


def test_arguments_have_spellings_default_and_meaning() -> None:
    assert [(each.spellings, each.default, each.meaning) for each in arguments_of(parser())] == [
        (("SONG",), "required", "what to sing"),
        (("VOICE",), "all of them", "who sings"),
        (("--key KEY",), "required", "the key"),
        (("-o", "--output text|json"), "text", "how"),
        (("--loud",), "off", "100 % of it"),
    ]


def test_a_call_is_shown_with_what_may_be_left_out_in_brackets() -> None:
    assert synopsis(parser()) == "sing --key KEY [--output text|json] [--loud] SONG [VOICE]"


def test_a_long_call_is_broken_between_arguments() -> None:
    made = argparse.ArgumentParser(prog="sing")
    for number in range(12):
        made.add_argument(f"--number-{number}", metavar="N")
    lines = synopsis(made).splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 120 for line in lines)
    assert all(line.count("[") == line.count("]") for line in lines)


def test_commands_are_found_at_every_depth() -> None:
    assert {"rolecall run", "rolecall cluster start", "rolecall create api", "ansible-operator run"} <= set(parsers())
    assert "rolecall cluster" not in parsers()


def test_old_names_of_flags_are_shown_though_the_help_hides_them() -> None:
    assert "| `--metrics-addr ADDRESS` | none | old name of `--metrics-bind-address` |" in command_block("rolecall run")


def test_defaults_of_this_machine_are_not_shown() -> None:
    text = command_block("rolecall run")
    assert "| `--max-concurrent-reconciles N` | the number of CPUs, up to 4 |" in text


def test_only_defaults_that_differ_are_compared() -> None:
    text = defaults_block("ansible-operator run against rolecall run")
    assert "| `--proxy-port PORT` | `8888` |" in text
    assert "--reconcile-period" not in text


@pytest.mark.parametrize("block", [command_block, defaults_block])
@pytest.mark.parametrize("name", ["rolecall sing", "rolecall run against rolecall sing"])
def test_a_command_that_is_not_there_is_told_of(block: object, name: str) -> None:
    assert callable(block)
    with pytest.raises(LookupError):
        block(name)
