"""Calls kstatus, the library by which Helm and Flux detect when an object is finished."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rolecall.kube.references import RawObject
from tests.support.go_programs import built


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
        return cls(built(Path(__file__).parent))

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
