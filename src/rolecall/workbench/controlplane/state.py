"""The state directory of control planes, and the saved state of a running one.

All state of a control plane is in one private directory named after it; removing the directory removes everything. With
the file state.json in it, any later command, or a start after a crash, finds and stops exactly the processes of the
control plane.
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

from rolecall.system.private_files import write_private
from rolecall.workbench.controlplane.component_processes import ProcessRecord
from rolecall.workbench.controlplane.components import Layout
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.controlplane.file_lock import locked

NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
STATE_FILE = "state.json"


@dataclass
class State:
    """The saved state of a control plane that is starting or running."""

    port: int
    nodes: int
    programs: dict[str, str]
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    is_ready: bool = False
    kubelet_port: int = 0


def default_state_directory() -> Path:
    """Return this user's private directory for control planes: in XDG_RUNTIME_DIR or the temporary directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "rolecall"
    return Path(tempfile.gettempdir()) / f"rolecall-{os.getuid()}"


def make_private(directory: Path) -> None:
    """Create the private directory if needed. Raise ControlPlaneError if another user could write to it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ControlPlaneError(
            f"state directory {str(directory)!r}: expected a directory that only you can write to, found"
            f" mode {stat.filemode(status.st_mode)} and owner {status.st_uid}"
        )


class StateStore:
    """The state of the control plane of one name."""

    def __init__(self, name: str, base: Path | None = None) -> None:
        """Take the name and the directory with the directories of all control planes."""
        if not NAME_PATTERN.fullmatch(name):
            raise ControlPlaneError(
                f"name of the control plane: expected lower case letters, digits and '-', at most 63, found {name!r}"
            )
        self.name = name
        self.base = (base or default_state_directory()).absolute()
        self.layout = Layout(self.base / name)

    def lock(self) -> AbstractContextManager[None]:
        """Return a lock against other starts and stops of this name."""
        make_private(self.base)
        return locked(self.base / f".{self.name}.lock", remove=True)

    def load(self) -> State | None:
        """Return the saved state, None if the control plane does not exist."""
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
        """Save the state atomically."""
        write_private(self.layout.root / STATE_FILE, json.dumps(asdict(state), indent=2).encode())

    def create_folders(self) -> None:
        """Create the directories of a new control plane."""
        for folder in (self.layout.root, self.layout.certificates, self.layout.log("any").parent):
            folder.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove the directory of this control plane."""
        if self.layout.root.exists():
            shutil.rmtree(self.layout.root)

    def remove_base_if_empty(self) -> None:
        """Remove the directory of all control planes if it is empty."""
        with suppress(OSError):
            self.base.rmdir()


def known_names(base: Path | None = None) -> list[str]:
    """Return the names of the control planes that have a directory, running or not."""
    directory = (base or default_state_directory()).absolute()
    if not directory.is_dir():
        return []
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and NAME_PATTERN.fullmatch(path.name))
