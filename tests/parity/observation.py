"""The visible effects of one run: its summary, events, artifacts, and changes outside.

Events are those that ansible-runner wrote, in full, with the text that each printed. With one host their order is
compared as a whole; with several it is compared host by host, because Ansible promises no more.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rolecall.runner.runs.events import RunEvent, strip_colors
from rolecall.runner.runs.outcome import Outcome
from tests.parity.normalization import Normalizer

_LEFT_OUT = frozenset({"start_line", "end_line", "counter"})
"""Line numbers and counters: they follow from the events before, which are compared."""

_TRACEBACK = "Traceback (most recent call last)"

_TITLE = ("TASK [", "task path: ")

_POLL = "runner_on_async_poll"
"""Output of each poll of a background task. The number of polls depends on the machine."""

_OLD_MODULE = re.compile(r"The `[\w.]+` module is deprecated\.")
"""A message of ansible-core 2.20 and newer when a plugin, or for warm runs the server, imports an old module."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One run. `raw_events` are ansible-runner's, `reported` what the operator was told, `files` what the play left.

    `notes` say which parts of a warm run took the ordinary path, and why; they are not compared.
    """

    summary: Outcome
    raw_events: list[dict[str, Any]]
    reported: list[RunEvent]
    artifacts: list[str]
    files: Mapping[str, str]
    processes: list[str]
    objects: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def comparable(self, normalizer: Normalizer, *, ordered: bool = True) -> dict[str, Any]:
        """Return everything that must be equal, as a JSON value; unless `ordered`, tasks may start in any order."""
        lasting = [event for event in self.raw_events if not _varies(event.get("event"), event.get("stdout"))]
        events = normalizer.value([_event(event, ordered=ordered) for event in lasting])
        told = [event for event in self.reported if not _varies(event.name, event.stdout)]
        reported = normalizer.value([_reported(event, ordered=ordered) for event in told])
        rest: dict[str, Any] = normalizer.value(
            {
                "summary": _summary(self.summary),
                "artifacts": self.artifacts,
                "files": self.files,
                "objects": self.objects,
                "processes": self.processes,
            }
        )
        return {"events": _by_host(events, ordered=ordered), "reported": _by_host(reported, ordered=ordered), **rest}


def read_events(artifacts: Path) -> list[dict[str, Any]]:
    """Return the events that ansible-runner has written, in their order."""
    paths = [path for path in (artifacts / "job_events").glob("*.json") if "partial" not in path.name]
    events = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return sorted(events, key=lambda event: int(event["counter"]))


def read_tree(directory: Path) -> dict[str, str]:
    """Return the contents of a directory: the text and permissions of each file, by path."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        mode = f"{path.lstat().st_mode:o}"
        found[name] = f"{mode} {path.read_text(errors='replace') if path.is_file() else ''}"
    return found


def artifact_names(artifacts: Path) -> list[str]:
    """Return the names of everything a run left, and how many events are compared."""
    names = {path.relative_to(artifacts).as_posix() for path in artifacts.rglob("*") if path.is_file()}
    events = {name for name in names if name.startswith("job_events/")}
    left_out = sum(_varies(event.get("event"), event.get("stdout")) for event in read_events(artifacts))
    return [*sorted(names - events), f"job_events: {len(events) - left_out}"]


def _varies(name: object, printed: object) -> bool:
    """Return whether an event may be there or not."""
    return name == _POLL or bool(name == "verbose" and _OLD_MODULE.search(strip_colors(str(printed or ""))))


def _reported(event: RunEvent, *, ordered: bool) -> dict[str, Any]:
    # What the operator is told is cut, and a traceback may be long or short: in the raw events it is compared in full.
    printed = _printed(event.stdout.partition(_TRACEBACK)[0], ordered=ordered)
    return {"host": event.host, **asdict(event), "stdout": printed}


def _summary(summary: Outcome) -> dict[str, Any]:
    value = asdict(summary) | {"duration_seconds": None, "peak_memory_bytes": None}
    if summary.completion:
        value["completion"] = "<time>"
    if summary.requeue_at is not None:
        value["requeue_at"] = "<time>"
    return value


def _printed(text: str, *, ordered: bool) -> str:
    """Return the output of an event; unless tasks are in order, without the title that the first result prints."""
    lines = strip_colors(text).splitlines()
    return "\n".join(line for line in lines if ordered or (line and not line.startswith(_TITLE)))


def _event(event: Mapping[str, Any], *, ordered: bool) -> dict[str, Any]:
    kept = {key: value for key, value in event.items() if key not in _LEFT_OUT}
    kept["stdout"] = _printed(str(event.get("stdout") or ""), ordered=ordered)
    data = event.get("event_data") or {}
    kept["host"] = data.get("host", "")
    if (result := data.get("res")) and "deprecations" in result:
        others = [each for each in result["deprecations"] if not _OLD_MODULE.match(each["msg"])]
        rest = {key: value for key, value in result.items() if key != "deprecations"}
        kept["event_data"] = {**data, "res": rest | ({"deprecations": others} if others else {})}
    return kept


def _by_host(events: Iterable[dict[str, Any]], *, ordered: bool) -> dict[str, list[dict[str, Any]]]:
    """Part events, whose times are gone by now, by their hosts; those of none are sorted where tasks have no order."""
    every = list(events)
    hosts = {event["host"] for event in every} - {""}
    if len(hosts) <= 1:
        return {"all": every}
    found: dict[str, list[dict[str, Any]]] = {}
    for event in every:
        found.setdefault(event["host"] or "none", []).append(event)
    if not ordered:
        found["none"].sort(key=lambda event: json.dumps(event, sort_keys=True, default=str))
    return dict(sorted(found.items()))
