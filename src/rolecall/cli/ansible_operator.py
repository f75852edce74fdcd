"""The program ``ansible-operator``: ``rolecall run`` for images and manifests that were made for the Go runner.

It has the Go runner's commands, defaults, flag syntax and exit codes: an invalid command line prints the usage and
exits with 1, and positional arguments of ``run`` are ignored.
"""

import argparse
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from rolecall.cli.parsing import Parser, join_flag_values
from rolecall.cli.run import add_run_command, ansible_operator_program
from rolecall.cli.terminal import exit_code_of
from rolecall.cli.version import commit

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class _Parser(Parser):
    """Print the whole usage with an error, and exit with 1."""

    def error(self, message: str) -> NoReturn:
        """Print the message and the usage, and exit."""
        self.exit(1, f"Error: {message}\n{self.format_help()}")


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = _Parser(prog="ansible-operator", description="Runs Ansible roles as Kubernetes operators.")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    add_run_command(commands, ansible_operator_program())
    shown = commands.add_parser("version", help="print the version", description="Prints the version.")
    shown.set_defaults(handler=_print_version)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with these arguments (default: those of the process) and return its exit code."""
    return exit_code_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    top = parser()
    options, others = top.parse_known_args(list(join_flag_values(sys.argv[1:] if arguments is None else arguments)))
    before_rest = others[: others.index("--")] if "--" in others else others
    if flags := [word for word in before_rest if word.startswith("-")]:
        options.parser.error(f"unknown flag: {flags[0].partition('=')[0]}")
    if "handler" not in options:
        top.print_help()
        return 0
    code: int = options.handler(options)
    return code


def _print_version(_options: argparse.Namespace) -> int:
    found = {
        "version": version("rolecall"),
        "commit": commit(),
        "kubernetes version": version("kubernetes"),
        "go version": f"none, Python {platform.python_version()}",
        "GOOS": sys.platform,
        "GOARCH": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }
    values = ", ".join(f'{name}: "{value}"' for name, value in found.items())
    sys.stdout.write(f"ansible-operator {values}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
