"""Parts of reports: exit codes, the tasks that are responsible, and lines of text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

from rolecall.kube.references import RawObject
from rolecall.runner.proxy.sessions import RequestOrigin
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.record.timeline import diff_lines

STYLES: Final = {"+": "green", "-": "red", "~": "yellow"}


class ExitCode(IntEnum):
    """The exit code of plan, replay, and crashtest for one object; see ``worst_of``."""

    SAME = 0
    FAILED = 1
    DIFFERENT = 2
    INCOMPLETE = 3

    @property
    def result(self) -> str:
        """The result that the code stands for, as documents have it."""
        return self.name.lower()


def worst_of(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the code for several objects: a failure takes precedence over everything else."""
    found = set(codes)
    return ExitCode.FAILED if ExitCode.FAILED in found else max(found, default=ExitCode.SAME)


@dataclass(frozen=True, slots=True)
class TaskName:
    """The name of a task with its role, and its file and line; ``is_hidden`` if it may set ``no_log``."""

    name: str
    location: str = ""
    is_hidden: bool = False

    @classmethod
    def of(cls, record: RunRecord, origin: RequestOrigin) -> Self | None:
        """Return the task that sent a request of a run, None if the record doesn't have it."""
        task = record.tasks.get((origin.task, origin.host))
        return cls(task.name, task.path, origin.is_hidden or task.is_hidden) if task else None

    @property
    def shown_location(self) -> str:
        """The location, relative to the working directory if it is below it."""
        return self.location.removeprefix(f"{Path.cwd()}/")


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its style in rich's syntax; the style is empty for plain text."""

    text: str
    style: str = ""


def diff(before: RawObject | None, after: RawObject | None, indent: str) -> Iterator[Line]:
    """Yield the lines of a diff."""
    yield from (Line(f"{indent}{line}", STYLES.get(line[:1], "")) for line in diff_lines(before, after))


def paragraph(start: str, text: str, style: str = "") -> Iterator[Line]:
    """Yield the lines of a text, whose control characters must not reach a terminal."""
    first, *rest = [escaped(line) for line in text.splitlines()] or [""]
    yield Line(f"{start}{first}", style)
    indent = " " * (len(start) - len(start.lstrip()) + 2)
    yield from (Line(f"{indent}{line}", style) for line in rest)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{count} {noun if count == 1 else f'{noun}s'}"


def escaped(text: str) -> str:
    """Return a text whose control characters are visible."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def task_text(task: TaskName) -> str:
    """Return the name of a task with its file and line."""
    name = task.name or "an unknown task"
    return f"{name} ({task.shown_location})" if task.location else name


def task_to_json(task: TaskName) -> dict[str, str]:
    """Return a task as the documents of plans and crash tests have it."""
    return {"name": task.name, "place": task.shown_location}
