"""``rolecall status``: shows the objects of the watched kinds from the cluster alone, failing ones first.

Exit code 0 means that everything was read, whatever state the objects are in. 1 means that something can't be read: one
line on standard error for each kind gives the reason, and the objects of the other kinds are shown. 2 means an invalid
command line.
"""

import argparse
import asyncio
import json
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rolecall.cli.parsing import FlagFormatter, add_flags, watch_namespaces
from rolecall.cli.terminal import INTERRUPTED, configure_quiet_logs, interrupted_by_signals, print_lines, width_of
from rolecall.kube.errors import KubeError
from rolecall.kube.failures import FailureGroup, ObjectState, State, short_message
from rolecall.kube.quantities import time_text
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.system.logs import printable

if TYPE_CHECKING:
    from rolecall.runner.fleet import Fleet, FleetObject

EPILOG = (
    "Without --watches-file, and without a watches.yaml in this directory, the kinds are all those of the cluster with "
    "a condition that an operator has written. NEXT RUN is the latest time of the next run, if watches.yaml or an "
    "annotation sets its period. Exit codes: 0 everything was read, whatever its state, 1 something can't be read, 2 "
    "an invalid command line."
)
_DAY: Final = 86400
_UNITS: Final = ((172800, _DAY, "d"), (7200, 3600, "h"), (120, 60, "m"), (0, 1, "s"))
"""From how many seconds a unit is used, its seconds, and its name."""

_HEADER: Final = ("NAMESPACE", "OBJECT", "STATE", "SINCE", "AGE", "NEXT RUN", "MESSAGE")
_NAMESPACE, _OBJECT, _STATE, _SINCE, _AGE, _NEXT_RUN, _MESSAGE = range(len(_HEADER))
_ALWAYS: Final = frozenset({_OBJECT, _STATE, _SINCE, _AGE})
"""The columns of every table; the others are left out if no object has a value."""

_MAX_NAMED: Final = 3
_MAX_PROBLEMS: Final = 10
"""Without a watches file, the kinds are those of the cluster, and users may list few of them."""

_MAX_PROPOSALS: Final = 10
_GAP: Final = "  "
_FIT: Final = (
    (_MESSAGE, 16),
    (_OBJECT, 24),
    (_NAMESPACE, 14),
    (_AGE, 0),
    (_OBJECT, 12),
    (_NEXT_RUN, 0),
    (_MESSAGE, 1),
)
"""How a table is made to fit: the columns and their least widths in turn, 0 to leave them out."""

_WITH_MESSAGE: Final = frozenset({State.FAILING, State.NOT_READY, State.UNKNOWN})
_STYLES: Final = {State.FAILING: "red", State.NOT_READY: "yellow", State.DELETING: "yellow", State.RUNNING: "cyan"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its style."""

    text: str
    style: str = ""


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "status",
        help="show the objects of the watched kinds, failing ones first",
        description="Shows every object of the kinds in watches.yaml with its state: failing ones first, and equal "
        "failures as a group with its common reason and time. It reads only the cluster, with your kubeconfig, so no "
        "operator has to run.",
        epilog=EPILOG,
        formatter_class=FlagFormatter,
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="only this namespace, and objects of cluster-scoped kinds (default: WATCH_NAMESPACE, else all)",
    )
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        metavar="KIND",
        help="only this kind, or its plural, with or without its group; can be repeated",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="the output format (default: %(default)s)"
    )
    add_flags(parser, Settings(), only={"kubeconfig", "watches-file"})
    parser.set_defaults(handler=_status)


def _status(options: argparse.Namespace) -> int:
    configure_quiet_logs()
    now = time.time()
    try:
        with interrupted_by_signals():
            fleet = asyncio.run(_read(options, _watches_file(options), now))
    except (ConfigurationError, KubeError, OSError) as error:
        sys.stderr.write(f"rolecall status: {printable(' '.join(str(error).split()))}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    if options.output == "json":
        sys.stdout.write(json.dumps(document_of(fleet, now), indent=2, ensure_ascii=False) + "\n")
    else:
        print_lines(lines_of(fleet, now, datetime.now().astimezone().tzinfo or UTC, width_of(sys.stdout)))
    sys.stdout.flush()
    sys.stderr.writelines(f"rolecall status: {printable(line)}\n" for line in problems_of(fleet, options.namespace))
    return 1 if fleet.problems else 0


def _watches_file(options: argparse.Namespace) -> Path | None:
    """Return the watches file, None if none is given and this directory has none."""
    given: Path | None = options.watches_file
    usual = Settings().watches_file
    return given or (usual if usual.exists() else None)


async def _read(options: argparse.Namespace, file: Path | None, now: float) -> "Fleet":
    # Imported late: other commands don't need the client.
    from rolecall.kube.client import Client  # noqa: PLC0415
    from rolecall.runner.config.watches import read_watched_kinds  # noqa: PLC0415
    from rolecall.runner.fleet import is_kind, read_fleet, served_kinds  # noqa: PLC0415

    wanted: Sequence[str] = options.kinds or ()
    kinds = read_watched_kinds(file, os.environ) if file else ()
    namespaces = (options.namespace,) if options.namespace else watch_namespaces(os.environ)
    async with await Client.connect(options.kubeconfig or None) as client:
        kinds = kinds if file else await served_kinds(client)
        for text in wanted:
            if not any(is_kind(text, kind.gvk) for kind in kinds):
                known = ", ".join(sorted({kind.gvk.kind for kind in kinds})) or "no kind"
                where = f"{file} has {known}" if file else "the cluster serves no such kind with a status"
                raise ConfigurationError(f"--kind {text}: {where}")
        selected = [kind for kind in kinds if not wanted or any(is_kind(text, kind.gvk) for text in wanted)]
        return await read_fleet(client, selected, namespaces, now, only_operated=not (file or wanted))


def problems_of(fleet: "Fleet", namespace: str | None) -> Iterator[str]:
    """Yield one line for each kind that can't be listed, and a hint if that may be permitted in one namespace."""
    for problem in fleet.problems[:_MAX_PROBLEMS]:
        yield f"can't list {problem.gvk.kind} ({problem.gvk.api_version}): {' '.join(problem.reason.split())}"
    if (more := len(fleet.problems) - _MAX_PROBLEMS) > 0:
        yield f"can't list {more} more {'kind' if more == 1 else 'kinds'}, see --output json"
    if any(problem.is_forbidden for problem in fleet.problems) and not namespace:
        yield "with permissions in one namespace only, use --namespace NAMESPACE"


def lines_of(fleet: "Fleet", now: float, zone: tzinfo, width: int) -> Iterator[Line]:
    """Yield the lines for a terminal of a width, 0 for lines of any length."""
    if not fleet.objects:
        kinds = ", ".join(gvk.kind for gvk in fleet.kinds)
        if kinds or not fleet.problems:
            yield Line(f"No objects of {kinds}" if kinds else "No objects of an operator")
        return
    yield from (Line(text) for text in _wrapped(_summary(fleet), width))
    yield Line("")
    for group in fleet.groups:
        yield from (Line(text, "red") for text in _group_lines(group, now, zone, width))
    if fleet.groups:
        yield Line("")
    yield from _table(fleet.objects, now, width)
    yield from _proposals(fleet.objects, width)


def _summary(fleet: "Fleet") -> str:
    counts = Counter(each.state.state for each in fleet.objects)
    states = ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
    return f"{len(fleet.objects)} {'object' if len(fleet.objects) == 1 else 'objects'}: {states}"


def _group_lines(group: FailureGroup, now: float, zone: tzinfo, width: int) -> Iterator[str]:
    yield from _wrapped(f"{group.heading(now, zone)}: {_one_line(group.message) or 'no message'}", width)
    names = [str(key) for key in group.keys[:_MAX_NAMED]]
    more = f" and {len(group.keys) - _MAX_NAMED} more" if len(group.keys) > _MAX_NAMED else ""
    yield from _wrapped(f"{_GAP}{', '.join(names)}{more}", width)


def _wrapped(text: str, width: int) -> list[str]:
    if not width:
        return [text]
    indent = _GAP
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True)


def _table(objects: "Sequence[FleetObject]", now: float, width: int) -> Iterator[Line]:
    """Yield a row for each object below a header, with the columns that have values."""
    rows = [_row(each, now) for each in objects]
    used = [number for number in range(len(_HEADER)) if number in _ALWAYS or any(row[number] for row in rows)]
    widths = [max(len(title), *(len(row[number]) for row in rows)) for number, title in enumerate(_HEADER)]
    _fit(widths, used, width)
    styles = ["bold", *(_STYLES.get(each.state.state, "") for each in objects)]
    for row, style in zip((_HEADER, *rows), styles, strict=True):
        cells = [_cut(row[number] or "-" * (number != _MESSAGE), widths[number]) for number in used]
        padded = [cell.ljust(widths[number]) for number, cell in zip(used, cells, strict=True)]
        yield Line(_GAP.join(padded).rstrip(), style)


def _proposals(objects: "Sequence[FleetObject]", width: int) -> Iterator[Line]:
    """Yield the deletions that prune proposes, each with the command that confirms it, which isn't wrapped."""
    found = [(each.state, each.proposal) for each in objects if each.proposal is not None]
    if not found:
        return
    yield Line("")
    of = "1 object waits" if len(found) == 1 else f"{len(found)} objects wait"
    yield from (Line(text, "yellow") for text in _wrapped(f"{of} for a person to confirm deletions:", width))
    for state, proposal in found[:_MAX_PROPOSALS]:
        names = [str(each) for each in proposal.objects[:_MAX_NAMED]]
        more = f" and {len(proposal.objects) - _MAX_NAMED} more" if len(proposal.objects) > _MAX_NAMED else ""
        count = f"{len(proposal.objects)} {'object' if len(proposal.objects) == 1 else 'objects'}"
        text = f"{state.gvk.kind} {state.key} no longer needs {count}: {', '.join(names)}{more}"
        yield from (Line(line) for line in _wrapped(_one_line(text), width))
        yield Line(f"{_GAP}{printable(proposal.command(state.gvk, state.key))}")
    if (left := len(found) - _MAX_PROPOSALS) > 0:
        yield from (Line(text) for text in _wrapped(f"and {left} more, see --output json", width))


def _fit(widths: list[int], used: list[int], width: int) -> None:
    """Shorten the message, then the names, then leave out columns, until a row fits the width; 0 is any width."""

    def excess() -> int:
        return sum(widths[each] for each in used) + len(_GAP) * (len(used) - 1) - width

    if not width:
        return
    for number, least in _FIT:
        if number not in used or (over := excess()) <= 0:
            continue
        if least:
            widths[number] = max(min(least, widths[number]), widths[number] - over)
        else:
            used.remove(number)


def _row(each: "FleetObject", now: float) -> tuple[str, ...]:
    state = each.state
    next_run = "" if each.next_run is None else age_text(each.next_run - now) if each.next_run > now else "overdue"
    message = short_message(state.message or state.reason) if state.state in _WITH_MESSAGE else ""
    ages = ("" if when is None else age_text(now - when) for when in (state.since, each.created))
    return (state.key.namespace, f"{state.gvk.kind}/{state.key.name}", state.state, *ages, next_run, _one_line(message))


def age_text(seconds: float) -> str:
    """Return a duration in one unit: ``90s``, ``15m``, ``47h``, ``3d``."""
    seconds = max(0.0, seconds)
    per_unit, name = next((size, name) for least, size, name in _UNITS if seconds >= least)
    return f"{int(seconds // per_unit)}{name}"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def document_of(fleet: "Fleet", now: float) -> dict[str, Any]:
    """Return the JSON document, with whole messages."""
    return {
        "time": time_text(now),
        "kinds": [_kind(gvk) for gvk in fleet.kinds],
        "groups": [
            {
                **_kind(group.gvk),
                "message": group.message,
                "since": _time(group.since),
                "failing": len(group.keys),
                "total": group.total,
                "objects": [_key(key) for key in group.keys],
            }
            for group in fleet.groups
        ],
        "objects": [_object(each) for each in fleet.objects],
        "problems": [{**_kind(each.gvk), "reason": each.reason} for each in fleet.problems],
    }


def _object(each: "FleetObject") -> dict[str, Any]:
    state: ObjectState = each.state
    return {
        **_kind(state.gvk),
        **_key(state.key),
        "state": state.state,
        "reason": state.reason,
        "message": state.message,
        "since": _time(state.since),
        "created": _time(each.created),
        "nextRun": _time(each.next_run),
        "proposal": _proposal(each),
    }


def _proposal(each: "FleetObject") -> dict[str, Any] | None:
    """Return the deletions that wait for a person."""
    if each.proposal is None:
        return None
    objects = [{**_kind(GVK(obj.id.group, obj.version, obj.kind)), **_key(obj.id.key)} for obj in each.proposal.objects]
    command = each.proposal.command(each.state.gvk, each.state.key)
    return {"objects": objects, "confirm": each.proposal.confirm, "command": command}


def _kind(gvk: GVK) -> dict[str, str]:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind}


def _key(key: ObjectKey) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(seconds)
