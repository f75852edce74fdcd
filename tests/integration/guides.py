"""Guides, done as a new user does them: their files and their commands, in their order, in a folder.

What a command prints has to be what the guide shows, but for ages, addresses, paths and generated names.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rolecall.controlplane.binaries import find_binaries

FILE = re.compile(r'^```yaml title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--- ended with "
MASKS = (
    (r"https://127\.0\.0\.1:\d+", "ADDRESS"),
    (r"/\S+/kubeconfig", "KUBECONFIG"),
    (r"hello-[0-9a-z]+-[0-9a-z]{5}\b", "POD"),
    (r"\b\d+s\b", "AGE"),
    (r"\s+", " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a guide and the lines that it shows for it."""

    command: str
    shown: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Tell whether the guide shows that the API server refuses it."""
        return any("is invalid" in line for line in self.shown)


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was done: the exit code, and the lines that were printed, without what differs from time to time."""

    step: Step
    code: int
    printed: tuple[str, ...]

    @property
    def unseen(self) -> list[str]:
        """The lines that the guide shows and that were not printed."""
        return [line for line in self.step.shown if masked(line) not in self.printed]


def steps(text: str) -> list[Step]:
    """Return the commands of a guide in their order."""
    return list(_steps(text))


def write_files(text: str, folder: Path) -> None:
    """Write the files that a guide shows with their names."""
    for name, content in FILE.findall(text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def do(wanted: Sequence[Step], folder: Path, state: Path) -> list[Done]:
    """Do the steps in one shell in the folder; control planes keep their state in ``state`` and are stopped at last."""
    script = "".join(f'{step.command}\necho "{MARK}$?"\n' for step in wanted)
    printed = _run_script(script, folder, state)
    parts = re.split(rf"^{MARK}(\d+)\n", printed, flags=re.MULTILINE)
    return [
        Done(step, int(code), tuple(masked(line) for line in lines.splitlines()))
        for step, lines, code in zip(wanted, parts[::2], parts[1::2], strict=False)
    ]


def masked(line: str) -> str:
    """Return a line without what differs from time to time."""
    for pattern, word in MASKS:
        line = re.sub(pattern, word, line)
    return line.strip()


def _steps(text: str) -> Iterator[Step]:
    for block in CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Step(command, tuple(shown))


def _run_script(script: str, work: Path, state: Path) -> str:
    programs = [str(Path(sys.executable).parent), str(find_binaries(print)["kubectl"].parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(programs), "ROLECALL_STATE_DIR": str(state)}
    try:
        finished = subprocess.run(
            ["bash"],
            input=script,
            text=True,
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=240,
            check=False,
        )
    finally:
        stop = [sys.executable, "-m", "rolecall", "cluster", "stop", "--all"]
        subprocess.run(stop, env=environment, check=False, capture_output=True)
    return finished.stdout
