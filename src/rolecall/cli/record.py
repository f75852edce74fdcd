"""``rolecall record``: lists and shows the records of runs that ``rolecall run --record-dir`` has written.

Exit code 0 means that every record could be read, 2 an invalid command line. For a record that can't be read, one
line on standard error gives the reason, and the exit code is that of its ``RecordError``.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rolecall.kube.json_values import with_texts
from rolecall.kube.quantities import format_duration
from rolecall.runner.record.reader import (
    MANIFESTS,
    RecordError,
    StoredRecord,
    UnreadableRecordError,
    exit_codes_text,
    read_ends,
    read_record,
)
from rolecall.runner.record.timeline import TimelineRequest, as_yaml, timeline_of
from rolecall.system.logs import printable

CONFIDENTIAL = (
    "Records contain the data that a role works with. Secrets are masked, but treat the files as confidential."
)
_COLORS: Final = {"+": "32", "-": "31", "failed": "31", "unreachable": "31", "changed": "33", "ok": "32", "head": "1"}
EPILOG = f"{CONFIDENTIAL} Exit codes for a bad record: {exit_codes_text()}."


def add_parser(commands: Any) -> None:
    """Add the command and its subcommands to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "record",
        help="list and show the records of runs",
        description="Reads the records that 'rolecall run --record-dir DIR' writes.",
        epilog=EPILOG,
    )
    below = parser.add_subparsers(title="commands", metavar="COMMAND")
    lister = below.add_parser(
        "list",
        help="list the records in a directory",
        description="Lists the records in a directory, the oldest first.",
        epilog=f"{EPILOG} If several records are bad, the first one decides.",
    )
    lister.add_argument("directory", type=Path, metavar="DIR", help="the directory of --record-dir")
    lister.set_defaults(handler=_list)
    shower = below.add_parser(
        "show",
        help="show a record",
        description="Shows a record: what started the run, its tasks and their requests, writes as diffs, the end.",
        epilog=EPILOG,
    )
    shower.add_argument("file", type=Path, metavar="FILE", help="the record")
    shower.set_defaults(handler=_show)


def _list(options: argparse.Namespace) -> int:
    from rolecall.runner.record.files import SUFFIX  # noqa: PLC0415 - only this command needs it

    directory: Path = options.directory
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        hint = "expected the directory of 'rolecall run --record-dir'"
        return _fail(UnreadableRecordError(f"{directory}: cannot be read: {error.strerror}; {hint}"))
    records, codes = [], []
    for path in paths:
        try:
            records.append(read_ends(path))
        except RecordError as error:
            codes.append(_fail(error))
    sys.stdout.writelines(f"{printable(line)}\n" for line in table(records))
    return codes[0] if codes else 0


def _show(options: argparse.Namespace) -> int:
    try:
        record = read_record(options.file)
    except RecordError as error:
        return _fail(error)
    head, end, exchanges, tasks = with_texts(
        [record.head, record.end, record.exchanges, record.tasks], printable, with_keys=True
    )
    record = replace(record, head=head, end=end, exchanges=tuple(exchanges), tasks=tuple(tasks))
    is_colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.writelines(f"{line}\n" for line in rendered(record, is_colored=is_colored))
    return 0


def _fail(error: RecordError) -> int:
    sys.stderr.write(f"rolecall record: {printable(str(error))}\n")
    return error.exit_code


def rendered(record: StoredRecord, *, is_colored: bool = False) -> Iterator[str]:
    """Yield the lines that show a record; with ``is_colored`` for a terminal."""

    def paint(text: str, kind: str) -> str:
        color = _COLORS.get(kind)
        return f"\x1b[{color}m{text}\x1b[0m" if is_colored and color and text else text

    head, end = record.head, record.end
    tasks, rest = timeline_of(record)
    took = format_duration(end["seconds"])
    yield paint(f"{record.kind} {record.name}: {end['outcome']} in {took}", "head")
    yield f"  started  {head['started']}, run {head['job']}{', for the finalizer' if head['finalizing'] else ''}"
    yield from (f"  because  {cause}" for cause in head["causes"])
    yield f"  content  {head['watch'].get('role') or head['watch'].get('playbook', '')}"
    yield f"  with     rolecall {head.get('rolecall')}, ansible-core {head.get('ansible-core')}"
    if not end["complete"]:
        yield "  incomplete: some bodies were not kept, see the omitted responses"
    for task in tasks:
        name = paint(f"TASK {task.name}{f' on {task.host}' if task.host else ''}", "head")
        result = paint(task.result or "did not end", task.result)
        took = f", {format_duration(task.seconds)}" if task.seconds else ""
        yield ""
        yield f"{name}: {result}{took}{', no_log' if task.is_hidden else ''}"
        yield f"  {task.place}"
        yield from (f"  {line}" for line in task.message.splitlines())
        yield from (f"  item {item}: {result}" for item, result in task.items)
        yield from _request_lines(task.requests, paint)
    if rest:
        yield ""
        yield paint("Requests of unfinished tasks", "head")
        yield from _request_lines(rest, paint)
    yield ""
    yield paint(f"END {end['outcome']}: {end['tasks']} tasks, {end['exchanges']} requests", "head")
    yield from (f"  {line}" for failure in end["failures"] for line in failure.splitlines())
    if end["requeueAfterSeconds"] is not None:
        yield f"  runs again in {format_duration(end['requeueAfterSeconds'])}"
    yield from _prune_lines(end.get("prune") or {})
    if end["status"] is not None:
        yield "  status:"
        yield from (f"    {line}" for line in as_yaml(end["status"]))


def _prune_lines(prune: Mapping[str, Any]) -> Iterator[str]:
    """Yield the actions of prune, and the manifests of the objects that it deleted."""
    for name in (each for each in prune if each != MANIFESTS):
        yield f"  {'prune' if name == 'reasons' else name}:"
        yield from (f"    {text}" for text in prune[name])
    manifests = prune.get(MANIFESTS) or ()
    if manifests:
        yield "  manifests of the deleted objects:"
    for manifest in manifests:
        yield "    ---"
        yield from (f"    {line}" for line in as_yaml(manifest))


def _request_lines(requests: Iterable[TimelineRequest], paint: Callable[[str, str], str]) -> Iterator[str]:
    for request in requests:
        status = paint(str(request.status), "failed" if request.has_failed else "")
        yield f"    {request.verb:<6} {request.target}  {status}  {format_duration(request.seconds)}"
        yield from (f"      {note}" for note in request.notes)
        yield from (f"      {paint(line, line[:1])}" for line in request.effects)


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
