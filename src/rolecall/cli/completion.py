"""``rolecall completion``: prints a script that completes the command line in a shell.

The script is static: pressing Tab doesn't start rolecall. It has the commands and flags of the installed version.
"""

import argparse
import sys
from typing import Any

SHELLS = ("bash", "zsh", "fish")
EPILOG = """Put the script where your shell finds it:
  bash  rolecall completion bash > ~/.local/share/bash-completion/completions/rolecall
  zsh   rolecall completion zsh > _rolecall, in a directory of $fpath
  fish  rolecall completion fish > ~/.config/fish/completions/rolecall.fish"""


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print a script that completes commands and flags in a shell",
        description="Prints a script with which a shell completes the commands and flags of rolecall. Generate it "
        "again after an update.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh, or fish")
    parser.set_defaults(handler=_print)


def _print(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need the parsers of all commands.
    import shtab  # noqa: PLC0415

    from rolecall.cli.main import parser  # noqa: PLC0415

    sys.stdout.write(shtab.complete(parser(), shell=options.shell))
    return 0
