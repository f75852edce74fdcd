"""``rolecall version``: prints versions, the commit, and which patches of Ansible runs use.

The commit is that of the checkout that contains the package (with ``-dirty`` if files have changed), the one that the
build of the wheel has recorded, or the one that pip recorded for an installation from a repository. Otherwise it is
``unknown``.
"""

import argparse
import json
import platform
import subprocess
import sys
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
_SPELLINGS = {"python": "Python"}
_TOP = Path(__file__).resolve().parents[3]
_GIT_SECONDS = 5.0
_OF_WHEEL = Path(__file__).resolve().parents[1] / "commit.txt"
"""The file in the package that build/commit_hook.py adds to a wheel."""


class ShowVersion(argparse.Action):
    """The flag ``--version``: print the same as the command and exit with 0."""

    def __init__(self, option_strings: list[str], dest: str, help: str | None = None) -> None:  # noqa: A002 - argparse's
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the versions and exit."""
        sys.stdout.write(as_text(versions(), patches()))
        parser.exit()


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "version",
        help="print the version, the commit, the versions of Python and ansible-core, and the patches in use",
        description="Prints the version of rolecall, its commit (unknown if nothing records it), the versions of "
        "Python and ansible-core that it runs on, and which patches of Ansible runs use. A patch is disabled if a "
        "function that it relies on differs from all tested releases: runs then work without it.",
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


def patches() -> dict[str, str]:
    """Return the state of each patch of Ansible, with the reason if it isn't in use."""
    # Imported here: the other commands don't need it.
    from rolecall.runner.warm.ansible_patches.patches import installed_patches  # noqa: PLC0415

    statuses = installed_patches()
    if find_spec("rolecall.workbench"):
        from rolecall.workbench.planned.playbook import patch_status  # noqa: PLC0415 - images don't have it

        statuses.append(patch_status())
    return {status.name: f"{status.state}: {status.reason}" if status.reason else status.state for status in statuses}


def commit(top: Path = _TOP) -> str:
    """Return the commit of this program; ``top`` is the root of its checkout, if there is one."""
    return _commit_of_checkout(top) or _commit_of_wheel() or _commit_of_installation() or UNKNOWN


def as_text(found: dict[str, str], used: dict[str, str]) -> str:
    """Return the versions and the states of patches as lines for people."""
    lines = [f"{_SPELLINGS.get(name, name)} {value}" for name, value in found.items()]
    return "\n".join([*lines, "patches of Ansible:", *(f"  {name}: {state}" for name, state in used.items())]) + "\n"


def _print(options: argparse.Namespace) -> int:
    if options.output == "json":
        sys.stdout.write(f"{json.dumps({**versions(), 'patches': patches()}, indent=2)}\n")
    else:
        sys.stdout.write(as_text(versions(), patches()))
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


def _commit_of_wheel() -> str:
    return _OF_WHEEL.read_text(encoding="utf-8").strip() if _OF_WHEEL.is_file() else ""


def _commit_of_installation() -> str:
    noted = json.loads(distribution("rolecall").read_text("direct_url.json") or "{}")
    found: str = noted.get("vcs_info", {}).get("commit_id", "")
    return found
