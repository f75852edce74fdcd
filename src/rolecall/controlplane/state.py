"""Where control planes keep their state, and what is remembered of a running one.

All state of a control plane lies in one private folder named after it; removing the folder removes everything. What
the folder's state.json remembers is enough for any later command, or for a start after a crash, to find and end
exactly the processes that belong to it. The processes themselves are the business of ``component_processes``, their
order that of ``cluster``.
"""

import json
import os
import re
import shutil
import stat
import tempfile
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rolecall.controlplane.component_processes import ProcessRecord
from rolecall.controlplane.components import Layout
from rolecall.controlplane.errors import ControlPlaneError
from rolecall.controlplane.file_lock import locked
from rolecall.private_files import write_private

NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
STATE_FILE = "state.json"


@dataclass
class State:
    """What is remembered of a control plane that is being started or runs."""

    port: int
    nodes: int
    programs: dict[str, str]
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    is_ready: bool = False


def default_state_directory() -> Path:
    """Give the private folder of this user for control planes: in XDG_RUNTIME_DIR or the temporary folder."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "rolecall"
    return Path(tempfile.gettempdir()) / f"rolecall-{os.getuid()}"


def make_private(directory: Path) -> None:
    """Make the folder, private, if need be; refuse one in which another user could put something in our way."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ControlPlaneError(
            f"state directory {str(directory)!r}: expected a folder of your own that nobody else may write to, found"
            f" mode {stat.filemode(status.st_mode)} and owner {status.st_uid}"
        )


class StateStore:
    """The state of the control plane of one name."""

    def __init__(self, name: str, base: Path | None = None) -> None:
        """Take the name and the folder that holds the folders of all control planes."""
        if not NAME_PATTERN.fullmatch(name):
            raise ControlPlaneError(
                f"name of the control plane: expected lower case letters, digits and '-', at most 63, found {name!r}"
            )
        self.name = name
        self.base = (base or default_state_directory()).absolute()
        self.layout = Layout(self.base / name)

    def lock(self) -> AbstractContextManager[None]:
        """Keep other starts and stops of this name out."""
        make_private(self.base)
        return locked(self.base / f".{self.name}.lock", remove=True)

    def load(self) -> State | None:
        """Read what is remembered; None if there is no such control plane."""
        try:
            content = json.loads((self.layout.root / STATE_FILE).read_text())
            records = {name: ProcessRecord(**record) for name, record in content.pop("processes").items()}
            return State(**content, processes=records)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            path = self.layout.root / STATE_FILE
            raise ControlPlaneError(
                f"{path}: expected the state of a control plane, found {error!r}; 'rolecall cluster stop' removes it"
            ) from error

    def save(self, state: State) -> None:
        """Remember the state; what was remembered before is replaced in one step."""
        write_private(self.layout.root / STATE_FILE, json.dumps(asdict(state), indent=2).encode())

    def create_folders(self) -> None:
        """Make the folders of a new control plane."""
        for folder in (self.layout.root, self.layout.certificates, self.layout.log("any").parent):
            folder.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove everything, and the folder above if nothing else is in it."""
        if self.layout.root.exists():
            shutil.rmtree(self.layout.root)

    def remove_base_if_empty(self) -> None:
        """Remove the folder of all control planes if there is none left."""
        with suppress(OSError):
            self.base.rmdir()


def known_names(base: Path | None = None) -> list[str]:
    """Name the control planes that have a folder, running or not."""
    directory = (base or default_state_directory()).absolute()
    if not directory.is_dir():
        return []
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and NAME_PATTERN.fullmatch(path.name))
