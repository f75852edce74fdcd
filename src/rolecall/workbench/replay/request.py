"""What somebody wants to have replayed, and with which roles."""

from dataclasses import dataclass
from pathlib import Path

from rolecall.kube.references import GVK
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import ParsedWatches, Watch
from rolecall.runner.record.reader import StoredRecord
from rolecall.workbench.replay.results import BadRecord


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What replays work with: the settings and watches of an operator, and the directory of its project."""

    settings: Settings
    watches: ParsedWatches
    project: Path
    runs_commands: bool = False

    def watch_for(self, record: StoredRecord) -> Watch | BadRecord:
        """Return the watch of a record's object, or why there is none."""
        gvk, file = GVK.of_object(record.head["object"]), self.settings.watches_file
        for error in self.watches.errors:
            if error.place.endswith(f"(kind {gvk.kind})") or not self.watches.watches:
                return BadRecord(record.path, f"{record.path}: cannot be replayed: {error}")
        found = next((each for each in self.watches.watches if each.gvk == gvk), None)
        missing = (
            f"{record.path}: kind {gvk.kind} of {gvk.api_version} is not in {file}: add it, or leave the record out"
        )
        return found or BadRecord(record.path, missing)
