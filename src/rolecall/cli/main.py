"""The program ``rolecall``: its commands and their exit codes.

Exit code 0 is success, 1 a failure, 2 an invalid command line. Of a command that compares, 2 means that something
differs, and 64 an invalid command line. Errors that you can fix are one line on standard error, without a traceback.

Operator images don't contain the workbench. There, only the commands of the runner exist.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from rolecall.cli import version
from rolecall.cli.parsing import Parser, join_flag_values
from rolecall.cli.terminal import exit_code_of

EPILOG = """To get started:
  rolecall demo             run the operator of this directory without a cluster
  rolecall init --help      create a project
  rolecall COMMAND --help   show the help of a command"""


COMMANDS: Final = (
    "run",
    "status",
    "validate",
    "plan",
    "crashtest",
    "explore",
    "record",
    "replay",
    "rbac",
    "cluster",
    "demo",
    "init",
    "create",
    "update",
    "generate",
    "completion",
    "version",
)
"""Every command, in the order of the help. Each has a module of its name in this package."""

RUNNER_COMMANDS: Final = frozenset({"run", "record", "status", "version"})
"""The commands that need no workbench."""


def has_workbench() -> bool:
    """Return whether the workbench is installed."""
    return find_spec("rolecall.workbench") is not None


def parser(only: str = "") -> Parser:
    """Return the parser of the command line: of one command, or of all installed commands.

    A command imports its module and nothing of the others, so an operator doesn't pay for them.
    """
    program = Parser(
        prog="rolecall",
        description="Runs Ansible roles as Kubernetes operators.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_argument("--version", action=version.ShowVersion, help="print what 'rolecall version' prints, and exit")
    commands = program.add_subparsers(title="commands", metavar="COMMAND")
    installed = COMMANDS if has_workbench() else filter(RUNNER_COMMANDS.__contains__, COMMANDS)
    for command in (only,) if only else installed:
        import_module(f"rolecall.cli.{command}").add_parser(commands)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with these arguments (default: those of the process) and return its exit code."""
    return exit_code_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words and words[0] in COMMANDS else ""
    if command and command not in RUNNER_COMMANDS and not has_workbench():
        sys.stderr.write(
            f"rolecall: this installation has no workbench, as in operator images, so '{command}' isn't available; "
            "install the whole package, for example with 'pipx install rolecall'\n"
        )
        return 1
    options = parser(command).parse_command(
        list(join_flag_values(words)) if command in ("run", "plan", "crashtest", "explore") else words
    )
    code: int = options.handler(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
