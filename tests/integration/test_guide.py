"""The ten-minutes guide, done as a new user does it: its files, its commands, in its order, in an empty folder.

What a command prints has to be what the guide shows, but for ages, addresses, paths and generated names.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rolecall.controlplane.binaries import find_binaries
from tests.integration.operators import PROJECT

GUIDE = PROJECT / "docs/guides/write-your-own-operator.md"
FILE = re.compile(r'^```yaml title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GETTING_ROLECALL = 5  # make setup, activate, PATH, an empty folder: what the test environment gives
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
    """One command of the guide and the lines that it shows for it."""

    command: str
    shown: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Tell whether the guide shows that the API server refuses it."""
        return any("is invalid" in line for line in self.shown)


def steps(text: str) -> Iterator[Step]:
    for block in CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Step(command, tuple(shown))


def masked(line: str) -> str:
    for pattern, word in MASKS:
        line = re.sub(pattern, word, line)
    return line.strip()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Step, int, list[str]]]:
    """Give each step with its exit code and the lines that it printed."""
    folder = tmp_path_factory.mktemp("guide")
    text = GUIDE.read_text()
    work = folder / "website"
    for name, content in FILE.findall(text):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(content)
    wanted = list(steps(text))[GETTING_ROLECALL:]
    script = "".join(f'{step.command}\necho "{MARK}$?"\n' for step in wanted)
    printed = _run_script(script, work, folder / "state")
    parts = re.split(rf"^{MARK}(\d+)\n", printed, flags=re.MULTILINE)
    return [
        (step, int(code), [masked(line) for line in lines.splitlines()])
        for step, lines, code in zip(wanted, parts[::2], parts[1::2], strict=False)
    ]


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


def test_every_command_of_the_guide_ends_as_it_should(terminal: list[tuple[Step, int, list[str]]]) -> None:
    ended = {step.command: code for step, code, _ in terminal}
    assert ended == {step.command: int(step.is_refused) for step, _, _ in terminal}
    assert len(terminal) == len(list(steps(GUIDE.read_text()))) - GETTING_ROLECALL


def test_every_command_of_the_guide_prints_what_the_guide_shows(terminal: list[tuple[Step, int, list[str]]]) -> None:
    missing = {
        step.command: (unseen, printed)
        for step, _, printed in terminal
        if (unseen := [line for line in step.shown if masked(line) not in printed])
    }
    assert missing == {}
