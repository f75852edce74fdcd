"""Events on their way from ansible-playbook to ansible-runner: in memory instead of in a file for each.

ansible-runner's callback writes what an event is into a file of its own, marks the place in the printed text, and the
driver reads the file and removes it when it meets the mark. Here both use one file in memory: the callback appends a
line of JSON, the driver reads on until it has found the event. Large events, and all once the memory is used up, take
the ordinary way. What the driver writes at the end, the file of the whole event, is the same.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ansible_runner

LARGE_BYTES = 256 * 1024
LIMIT_BYTES = 8 * 1024 * 1024
_PREFIX = ":1:ev-"
_READ_BYTES = 1 << 20

Keep = Callable[[str, Any], None]
"""How the callback keeps an event: its key and what it is."""


class EventChannel:
    """What is known of events when they begin; `descriptor` is inherited by the process that writes them."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("events")
        self._position = 0
        self._rest = b""
        self._found: dict[str, dict[str, Any]] = {}

    def take(self, ident: str) -> dict[str, Any] | None:
        """Return what was written of an event; None if it took the ordinary way."""
        while ident not in self._found:
            data = os.pread(self.descriptor, _READ_BYTES, self._position)
            if not data:
                return None
            self._position += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._found.update((event["uuid"], event) for event in map(json.loads, lines))
        return self._found.pop(ident)


class EventWriter:
    """Stands in for the object with which ansible-runner's callback keeps events."""

    def __init__(self, descriptor: int, encoder: type[json.JSONEncoder], ordinary: Keep) -> None:
        self._descriptor = descriptor
        self._encoder = encoder
        self._ordinary = ordinary
        self._written = 0

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Keep an event."""
        line = json.dumps(value, cls=self._encoder).encode() + b"\n"
        if (
            len(line) > LARGE_BYTES
            or self._written + len(line) > LIMIT_BYTES
            or value.get("uuid") != key[len(_PREFIX) :]
        ):
            self._ordinary(key, value)
            return
        self._written += len(line)
        while line:
            line = line[os.write(self._descriptor, line) :]


def use_event_channel(runner: Any, channel: EventChannel) -> None:
    """Let ansible-runner's driver of one play look for events there first."""
    ordinary = runner.event_callback

    def on_event(event: dict[str, Any]) -> None:
        known = channel.take(event["uuid"]) if "uuid" in event else None
        if known is None:
            ordinary(event)
            return
        runner.last_stdout_update = time.time()
        event.update({"runner_ident": str(runner.config.ident)}, **known)
        is_wanted = runner.event_handler is None or runner.event_handler(event)
        for plugin in ansible_runner.plugins.values():
            plugin.event_handler(runner.config, event)
        if is_wanted:
            with suppress(OSError):  # as ansible-runner does: an event that cannot be kept ends no play
                _write(Path(runner.config.artifact_dir) / "job_events", event)

    runner.event_callback = on_event


def _write(folder: Path, event: dict[str, Any]) -> None:
    """Write the file of a whole event, private, and complete as soon as it has its name."""
    path = f"{folder}/{event['counter']}-{event['uuid']}.json"
    descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(event))
    os.rename(f"{path}.tmp", path)  # noqa: PTH104 - plain text
