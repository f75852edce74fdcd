"""The artifacts of one run while it lasts: what is stored of an event, and how much the run may store.

The process of a run writes all its artifacts: the command, a file for each event, and ``stdout``, with what is printed
for each event. So what is there at the first event, and then the events, are everything; a single file that grows
between two of them meets ``RLIMIT_FSIZE``.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.resource_limits import limit_file_size

_PRINTED = "stdout"
_END_OF_LINE = "\r\n"  # a terminal's; ansible-runner writes one after the text of an event, and not into the event


class ArtifactsTooLargeError(Exception):
    """The artifacts of a run are larger than it may have."""


class EventFiles:
    """The files of the events of one run, in ``folder``; with a limit of 0 nothing is limited.

    With ``output_in_events`` a file repeats what is printed for its event, and ansible-runner writes it. Otherwise it
    is written here, and its ``start_line`` and ``end_line`` say where the text is in ``stdout``.
    """

    def __init__(self, folder: Path, limit_bytes: int, *, output_in_events: bool) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._output_in_events = output_in_events
        self._counted_bytes = 0

    def store(self, event: Mapping[str, Any]) -> bool:
        """Take note of an event; return whether ansible-runner is to write it.

        Raises ArtifactsTooLargeError if the run has stored too much.
        """
        if self._limit_bytes and not self._counted_bytes:
            # Not earlier: ansible-playbook, which has started by now, may write files of any size.
            limit_file_size(self._limit_bytes)
            self._counted_bytes = _size_of_files(self._folder.parent)
        stored = event if self._output_in_events else {key: event[key] for key in event if key != _PRINTED}
        text = json.dumps(stored)
        self._counted_bytes += len(text) + _printed_bytes(event)
        if self._counted_bytes > self._limit_bytes > 0:
            raise ArtifactsTooLargeError(
                f"the run was ended, because its artifacts have more than {format_bytes(self._limit_bytes)}: let the "
                "role print and return less, or raise --max-artifacts-size, of which a run may have an eighth"
            )
        if not self._output_in_events:
            with suppress(OSError):  # as in ansible-runner: an event that cannot be written does not end the run
                self._write(f"{event['counter']}-{event['uuid']}.json", text)
        return self._output_in_events

    def _write(self, name: str, text: str) -> None:
        """Write a file that only this user may read, and give it its name when it is complete."""
        path = self._folder / name
        partial = path.with_name(f"{name}.tmp")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        partial.replace(path)


def _printed_bytes(event: Mapping[str, Any]) -> int:
    printed = str(event.get(_PRINTED, ""))
    return len(printed.encode(errors="replace")) + len(_END_OF_LINE) if printed else 0


def _size_of_files(folder: Path) -> int:
    # In bytes, as the events: ``size_on_disk`` of the budget counts blocks, once a run is over.
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
