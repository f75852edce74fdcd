"""The program ``rolecall``: its commands and their exit codes.

Exit code 0 is success, 1 a failure, 2 an invalid command line. Of a command that compares, 2 means that something
differs, and 64 an invalid command line. Errors that you can fix are one line on standard error, without a traceback.
"""

import argparse
import sys
from collections.abc import Sequence

from rolecall.cli import cluster, create, demo, init, plan, rbac, record, replay, run, top, validate, version
from rolecall.cli.parsing import Parser, join_flag_values
from rolecall.cli.terminal import exit_code_of

EPILOG = """To get started:
  rolecall demo             run the operator of this directory without a cluster
  rolecall init --help      create a project
  rolecall COMMAND --help   show the help of a command"""


def parser() -> Parser:
    """Return the parser of the whole command line."""
    program = Parser(
        prog="rolecall",
        description="Runs Ansible roles as Kubernetes operators.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_argument("--version", action=version.ShowVersion, help="print what 'rolecall version' prints, and exit")
    commands = program.add_subparsers(title="commands", metavar="COMMAND")
    for command in (run, top, validate, plan, record, replay, rbac, cluster, demo, init, create, version):
        command.add_parser(commands)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with these arguments (default: those of the process) and return its exit code."""
    return exit_code_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_command(list(join_flag_values(words)) if words[:1] in (["run"], ["plan"]) else words)
    code: int = options.handler(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
