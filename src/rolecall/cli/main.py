"""The program ``rolecall``: its commands, what they share, and their exit codes.

Exit code 0 is success, 1 something that went wrong, 2 a command line that cannot be meant. Errors that a user can
mend are one line on standard error, without a traceback.
"""

import argparse
import sys
from collections.abc import Sequence

from rolecall.cli import cluster, create, demo, init, run, validate, version
from rolecall.cli.flags.command_line import joined
from rolecall.cli.parsing import Parser

EPILOG = """To begin with:
  rolecall demo             see the operators of this folder at work, without a cluster
  rolecall init --help      start a project of your own
  rolecall COMMAND --help   read about a command"""


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = Parser(
        prog="rolecall",
        description="Runs Ansible roles as Kubernetes operators.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=version.ShowVersion, help="print what 'rolecall version' prints, and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for command in (run, validate, cluster, demo, init, create, version):
        command.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with these arguments, by default those of the process, and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_command(list(joined(words)) if words[:1] == ["run"] else words)
    code: int = options.handler(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
