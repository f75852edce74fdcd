"""The description and the arguments of a command, read from the argument parsers, as Markdown.

The output of ``--help`` depends on the terminal and on the Python version, so it is not used.
"""

# ruff: noqa: SLF001 - argparse has no public list of a parser's arguments

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tools.docs.markdown import WIDTH, code, linked, marked, paragraph, table

from rolecall.cli import ansible_operator
from rolecall.cli import main as rolecall
from rolecall.cli.flags import all_flags

_DEFAULT = re.compile(r"(?P<meaning>.*) \(default: (?P<default>.*)\)", re.DOTALL)
_HARD_SPACE = "\x00"
_USUAL_TITLES = ("options", "positional arguments")
_HIDDEN = {f"--{flag.name}": flag.help for flag in all_flags() if flag.replaced_by}
_OPERATOR = "rolecall run"
_CLUSTER = "rolecall cluster start"
"""The commands to whose tables others refer."""
_LINKS = {
    "--watches-file": ("what to watch", "watches.md"),
    "--kubeconfig": ("the cluster", "environment-and-annotations.md"),
    "--inject-owner-ref": ("an owner reference", "../concepts/dependents-and-ownership.md"),
    "--warm": ("a process that has imported Ansible", "../concepts/warm.md"),
    "--warm-idle": ("frees its memory", "../concepts/warm.md#memory-of-an-idle-operator"),
    "--metrics-bind-address": ("metrics", "metrics.md"),
    "--ui-bind-address": ("dashboard", "../guides/dashboard.md"),
    "--user-metrics-port": ("metrics of their own", "metrics.md#metrics-of-roles"),
    "--health-probe-bind-address": ("health probes", "../concepts/leader-election.md#probes"),
    "--leader-elect": ("holding a Lease", "../concepts/leader-election.md"),
}
"""The words in the help of ``run`` that become links."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag or a positional argument: its spellings, its default and its meaning in plain text."""

    spellings: tuple[str, ...]
    default: str
    meaning: str


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command without subcommands by its full name, such as ``rolecall cluster start``."""
    return dict(_leaves(rolecall.parser())) | dict(_leaves(ansible_operator.parser()))


def command_block(name: str) -> str:
    """Return the description, the synopsis and the arguments of a command. Raise LookupError if it is unknown.

    Flags with the default and the meaning that another command's table already has are a link to that table.
    """
    parser = _parser(name)
    parts = [paragraph(marked(parser.description or "")), f"```text\n{synopsis(parser)}\n```"]
    reference = _CLUSTER if name.startswith("rolecall cluster ") else _OPERATOR
    known = () if name == reference else arguments_of(_parser(reference))
    for title, all_arguments in _groups(parser):
        arguments = [each for each in all_arguments if each not in known]
        if shared := [each for each in all_arguments if each in known]:
            parts.append(_reference_to(reference, shared))
        if not arguments:
            continue
        header = ("flag" if all(_is_flag(each) for each in arguments) else "argument", "default", "meaning")
        parts += [f"{title[:1].upper()}{title[1:]}:"] if title not in _USUAL_TITLES else []
        parts.append(table(header, (_row(each, _LINKS if name == _OPERATOR else {}) for each in arguments)))
    return "\n\n".join(parts)


def defaults_block(names: str) -> str:
    """Return the defaults of A that differ from those of B, for ``A against B``. Raise LookupError."""
    here, against, there = names.partition(" against ")
    if not against:
        raise LookupError("expected two commands with 'against' between them")
    theirs = {each.spellings: each.default for each in arguments_of(_parser(there))}
    rows = [_row(each, {})[:2] for each in arguments_of(_parser(here)) if each.default != theirs.get(each.spellings)]
    return table(("flag", "default"), rows)


def arguments_of(parser: argparse.ArgumentParser) -> list[Argument]:
    """Return the arguments of a command in the order of its help, without ``--help`` and ``--version``."""
    return [each for _, arguments in _groups(parser) for each in arguments]


def synopsis(parser: argparse.ArgumentParser) -> str:
    """Return the synopsis of a command: its name, its flags, its positional arguments."""
    if parser.usage:
        return parser.usage
    flags = [_in_synopsis(action) for action in parser._actions if action.option_strings and action.dest != "help"]
    positional = [_in_synopsis(action) for action in parser._actions if not action.option_strings]
    # Lines are broken only between arguments.
    words = [word.replace(" ", _HARD_SPACE) for word in (*flags, *positional)]
    text = " ".join([parser.prog, *words])
    lines = textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_HARD_SPACE, " ")


def _parser(name: str) -> argparse.ArgumentParser:
    found = parsers()
    if name not in found:
        raise LookupError(f"unknown command; expected one of {', '.join(found)}")
    return found[name]


def _leaves(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for command in action.choices.values():
            yield from _leaves(command)
    if not below:
        yield parser.prog, parser


def _groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[Argument]]]:
    """Yield the title and the arguments of each group that has arguments."""
    for group in parser._action_groups:
        arguments = [_argument(action, parser) for action in group._group_actions if action.dest != "help"]
        if arguments:
            yield group.title or "", arguments


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> Argument:
    *short, last = action.option_strings or [""]
    spellings = (*short, _spelling(action, last) if last else _metavar(action))
    text = _HIDDEN[action.option_strings[-1]] if action.help == argparse.SUPPRESS else action.help or ""
    text %= {**vars(action), "prog": parser.prog}
    if found := _DEFAULT.fullmatch(text):
        return Argument(spellings, found["default"], found["meaning"])
    if action.required:
        return Argument(spellings, "required", text)
    return Argument(spellings, "off" if action.nargs == 0 else "none", text)


def _reference_to(command: str, arguments: Sequence[Argument]) -> str:
    flags = ", ".join(code(re.split(r"[ \[]", each.spellings[-1])[0]) for each in arguments)
    return paragraph(f"As in [{code(command)}](#{command.replace(' ', '-')}): {flags}.")


def _row(argument: Argument, links: Mapping[str, tuple[str, str]]) -> tuple[str, str, str]:
    spellings = ", ".join(map(code, argument.spellings))
    is_value = " " not in argument.default and argument.default not in ("off", "none")
    meaning = marked(argument.meaning)
    for flag, (words, target) in links.items():
        if re.split(r"[ \[]", argument.spellings[-1])[0] == flag:
            meaning = linked(meaning, words, target)
    return spellings, code(argument.default) if is_value else marked(argument.default), meaning


def _is_flag(argument: Argument) -> bool:
    return argument.spellings[0].startswith("-")


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _spelling(action: argparse.Action, flag: str) -> str:
    if action.nargs == 0:
        return flag
    metavar = _metavar(action)
    return f"{flag}{metavar}" if metavar.startswith("[") else f"{flag} {metavar}"


def _in_synopsis(action: argparse.Action) -> str:
    text = _spelling(action, action.option_strings[-1]) if action.option_strings else _metavar(action)
    return text if action.required else f"[{text}]"
