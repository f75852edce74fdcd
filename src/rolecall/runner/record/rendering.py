"""A record as a person reads it: what started the run, its tasks with their requests below them, writes as diffs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rolecall.kube.durations import format_duration
from rolecall.runner.record.reader import StoredRecord
from rolecall.runner.record.timeline import RequestStory, TaskStory, story_of
from rolecall.runner.record.yaml_diff import as_yaml

_COLOURS: Final = {"+": "32", "-": "31", "failed": "31", "unreachable": "31", "changed": "33", "ok": "32", "head": "1"}


@dataclass(slots=True)
class Rendering:
    """Renders one record; with ``is_coloured`` for a terminal."""

    record: StoredRecord
    is_coloured: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the lines of the record."""
        story = story_of(self.record)
        yield from self._head()
        for task in story.tasks:
            yield ""
            yield from self._task(task)
        if story.rest:
            yield ""
            yield self._coloured("Requests of no task that has ended", "head")
            for request in story.rest:
                yield from self._request(request)
        yield ""
        yield from self._end()

    def _head(self) -> Iterator[str]:
        head, end = self.record.head, self.record.end
        took = format_duration(end["seconds"])
        yield self._coloured(f"{self.record.kind} {self.record.name}: {end['outcome']} in {took}", "head")
        yield f"  started  {head['started']}, run {head['job']}{', for the finalizer' if head['finalizing'] else ''}"
        for cause in head["causes"]:
            yield f"  because  {cause}"
        watch = head["watch"]
        yield f"  content  {watch.get('role') or watch.get('playbook', '')}"
        yield f"  with     rolecall {head.get('rolecall')}, ansible-core {head.get('ansible-core')}"
        if not end["complete"]:
            yield "  incomplete: not every body was kept, see the answers that were left out"

    def _task(self, task: TaskStory) -> Iterator[str]:
        place = f" on {task.host}" if task.host else ""
        result = self._coloured(task.result or "did not end", task.result)
        took = f", {format_duration(task.seconds)}" if task.seconds else ""
        name = self._coloured(f"TASK {task.name}{place}", "head")
        yield f"{name}: {result}{took}{', no_log' if task.is_hidden else ''}"
        yield f"  {task.place}"
        yield from (f"  {line}" for line in task.message.splitlines())
        yield from (f"  item {item}: {result}" for item, result in task.items)
        for request in task.requests:
            yield from self._request(request)

    def _request(self, request: RequestStory) -> Iterator[str]:
        status = self._coloured(str(request.status), "failed") if request.has_failed else str(request.status)
        yield f"    {request.verb:<6} {request.target}  {status}  {format_duration(request.seconds)}"
        yield from (f"      {name} left out: {reason}" for name, reason in request.omitted)
        yield from (f"      {self._coloured(line, line[:1])}" for line in request.effects)

    def _end(self) -> Iterator[str]:
        end = self.record.end
        yield self._coloured(f"END {end['outcome']}: {end['tasks']} tasks, {end['exchanges']} requests", "head")
        yield from (f"  {line}" for failure in end["failures"] for line in failure.splitlines())
        if end["requeueAfterSeconds"] is not None:
            yield f"  runs again in {format_duration(end['requeueAfterSeconds'])}"
        if end["status"] is not None:
            yield "  status:"
            yield from (f"    {line}" for line in as_yaml(end["status"]))

    def _coloured(self, text: str, kind: str) -> str:
        colour = _COLOURS.get(kind)
        return f"\x1b[{colour}m{text}\x1b[0m" if self.is_coloured and colour and text else text


def table(records: Iterable[StoredRecord]) -> list[str]:
    """Return one line for each record, below a header."""
    rows = [("STARTED", "KIND", "NAME", "OUTCOME", "TOOK", "TASKS", "REQUESTS", "FILE")]
    for record in records:
        end = record.end
        took = format_duration(end["seconds"])
        counts = (str(end["tasks"]), str(end["exchanges"]))
        rows.append((record.head["started"], record.kind, record.name, end["outcome"], took, *counts, record.path.name))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
