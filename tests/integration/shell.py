"""Pages of the documentation, done as a new user does them: their commands, in their order, in one shell.

Control planes keep their state in a directory of the test, and regardless of what was started ends with the shell.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rolecall.workbench.controlplane.binaries import find_binaries
from tests.guides import PROJECT, Step
from tests.outcomes import Done, done

MARK = "--- ended with "
MOST_SECONDS = 900.0
TOO_LONG = 124  # as timeout of coreutils says it


def copy_repository(place: Path) -> None:
    """Copy the files of the repository as they are now, without what git ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, place / name)


def clone(directory: Path) -> Path:
    """Return a copy of the repository as git would clone it, with the virtual environment and the uv of these tests."""
    place = directory / "rolecall"
    copy_repository(place)
    for name in ("pyproject.toml", "uv.lock"):
        os.utime(place / name, (0, 0))  # else make would install the copy in place of what is tested
    (place / ".venv").symlink_to(Path(sys.executable).parents[1])
    if (uv := PROJECT / ".venv-uv").exists():
        (place / uv.name).symlink_to(uv)  # else make would install another
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)
    return place


def do(wanted: Sequence[Step], directory: Path, state: Path, before: Mapping[str, str] | None = None) -> list[Done]:
    """Run the steps in one shell in the directory; ``before`` has hidden commands before a command, such as ``cd``."""
    unseen = before or {}
    script = "".join(f'{unseen.get(step.command, ":")}\n{step.command}\necho "{MARK}$?"\n' for step in wanted)
    printed = _run(script, directory, state)
    parts = re.split(rf"^{MARK}(\d+)\n", printed, flags=re.MULTILINE)
    codes = [*map(int, parts[1::2]), TOO_LONG]
    return [done(step, code, lines) for step, lines, code in zip(wanted, parts[::2], codes, strict=False)]


def _run(script: str, directory: Path, state: Path) -> str:
    """Run a script in its own session and return what it printed; one that takes too long is ended."""
    environment = _environment(state)
    source, printed = state.with_suffix(".sh"), state.with_suffix(".printed")
    source.write_text(script)
    with printed.open("w") as output:
        shell = subprocess.Popen(
            ["bash", source],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(MOST_SECONDS)
    _end(shell)
    subprocess.run([sys.executable, "-m", "rolecall", "cluster", "stop", "--all"], env=environment, check=False)
    return printed.read_text()


def _environment(state: Path) -> dict[str, str]:
    programs = [str(Path(sys.executable).parent), str(find_binaries(print)["kubectl"].parent), os.environ["PATH"]]
    of_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if name not in (*of_make, "KUBECONFIG")}
    return {**kept, "PATH": os.pathsep.join(programs), "ROLECALL_STATE_DIR": str(state)}


def _end(shell: "subprocess.Popen[bytes]") -> None:
    """End a shell and what it left, such as an operator in its background."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGTERM)
    shell.wait()
