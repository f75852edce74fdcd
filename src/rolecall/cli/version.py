"""``rolecall version``: prints the versions of rolecall, Python and ansible-core, and the commit.

The commit is that of the checkout that contains the package (with ``-dirty`` if files have changed), or the one that
pip recorded for an installation from a repository. Otherwise it is ``unknown``.
"""

import argparse
import json
import platform
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
_SPELLINGS = {"python": "Python"}
_TOP = Path(__file__).resolve().parents[3]
_GIT_SECONDS = 5.0


class ShowVersion(argparse.Action):
    """The flag ``--version``: print the same as the command and exit with 0."""

    def __init__(self, option_strings: list[str], dest: str, help: str | None = None) -> None:  # noqa: A002 - argparse's
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the versions and exit."""
        sys.stdout.write(as_text(versions()))
        parser.exit()


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "version",
        help="print the version, the commit, and the versions of Python and ansible-core",
        description="Prints the version of rolecall, its commit (unknown if nothing records it), and the versions of "
        "Python and ansible-core that it runs on.",
    )
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="the format of the output (default: %(default)s)"
    )
    parser.set_defaults(handler=_print)


def versions() -> dict[str, str]:
    """Return the versions that a bug report needs."""
    return {
        "rolecall": version("rolecall"),
        "commit": commit(),
        "python": platform.python_version(),
        "ansible-core": version("ansible-core"),
    }


def commit(top: Path = _TOP) -> str:
    """Return the commit of this program; ``top`` is the root of its checkout, if there is one."""
    return _commit_of_checkout(top) or _commit_of_installation() or UNKNOWN


def as_text(found: dict[str, str]) -> str:
    """Return the versions as lines for people."""
    return "".join(f"{_SPELLINGS.get(name, name)} {value}\n" for name, value in found.items())


def _print(options: argparse.Namespace) -> int:
    found = versions()
    sys.stdout.write(f"{json.dumps(found, indent=2)}\n" if options.output == "json" else as_text(found))
    return 0


def _commit_of_checkout(top: Path) -> str:
    if not ((top / ".git").exists() and (top / "pyproject.toml").is_file()):
        return ""
    try:
        command = ["git", "-C", str(top), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit_of_installation() -> str:
    noted = json.loads(distribution("rolecall").read_text("direct_url.json") or "{}")
    found: str = noted.get("vcs_info", {}).get("commit_id", "")
    return found
