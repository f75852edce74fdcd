"""Calls kstatus, the library by which Helm and Flux detect when an object is finished.

The program in this directory is built once, with the Go that the embedded control plane is built with, and kept in the
cache under the sum of its sources.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane.binaries import cache_root, find_go

_FOLDER = Path(__file__).parent
_SOURCES = ("go.mod", "go.sum", "main.go")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of one object (``InProgress``, ``Current``, ``Failed``, or ``Terminating``) and its reason."""

    word: str
    message: str


@dataclass(frozen=True, slots=True)
class Judge:
    """The built program."""

    program: Path

    @classmethod
    def built(cls) -> "Judge":
        """Return the program, from the cache if it is there. Raises CalledProcessError."""
        sums = hashlib.sha256(b"\0".join((_FOLDER / name).read_bytes() for name in _SOURCES))
        program = cache_root() / f"kstatus-{sums.hexdigest()[:16]}"
        if not program.is_file():
            _build(program)
        return cls(program)

    def judge(self, objects: Iterable[RawObject], check: Path | None = None) -> list[Verdict]:
        """Return the verdict on each object, of a health check of Argo CD in a file if it is given."""
        lines = "".join(f"{json.dumps(obj)}\n" for obj in objects)
        answer = subprocess.run(
            [self.program, *([check] if check else [])], input=lines, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stderr
        found = map(json.loads, answer.stdout.splitlines())
        return [Verdict(each["status"], each["message"]) for each in found]

    def words(self, objects: Iterable[RawObject]) -> list[str]:
        """Return the words of the verdicts."""
        return [verdict.word for verdict in self.judge(objects)]


def _build(program: Path) -> None:
    """Build the program whole or not at all; a second process that builds it at the same time does no harm."""
    program.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write("Building the judge of tests/kstatus, a minute on two cores, the first time\n")
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        made = Path(directory) / program.name
        command = [str(find_go()), "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
        subprocess.run(command, cwd=_FOLDER, env=os.environ | _ENVIRONMENT, check=True)
        made.replace(program)
