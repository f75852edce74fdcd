"""The state of a control plane on this machine: its private directory, its processes, and file locks.

All state of a control plane is in one private directory named after it; removing the directory removes everything. With
the file state.json in it, any later command, or a start after a crash, finds and stops exactly the processes of the
control plane. A process is recorded by its PID and its start time, so that a reused PID is never signalled. It runs in
its own session with its output in a file, so that the command that started it can return. A process that does not stop
within the grace period is killed. ``rolecall.workbench.controlplane.components`` has the command lines.

A file lock prevents two concurrent starts from sharing a directory, or from building the same programs twice. The lock
is advisory and is released when its process exits. If the lock file should be removed with what it protects, the holder
removes it, and processes that waited for the removed file lock a new one.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from rolecall.system.files import write_private
from rolecall.workbench.controlplane.components import Layout
from rolecall.workbench.controlplane.errors import ControlPlaneError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KILL_WAIT_SECONDS = 10.0
POLL_SECONDS = 0.01
START_TICKS_FIELD = 19  # counted from the field behind the program's name in /proc/PID/stat
NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
STATE_FILE = "state.json"


@dataclass(frozen=True)
class ProcessRecord:
    """A process that we started: its PID, and its start mark to distinguish it from others with this PID."""

    pid: int
    started: str


def _start_mark(pid: int) -> str:
    """Return the start time of the process in a form that does not depend on the system clock."""
    if sys.platform != "linux":
        return repr(psutil.Process(pid).create_time())
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return f"{BOOT_ID.read_text().strip()}/{fields[START_TICKS_FIELD]}"


def _find(record: ProcessRecord) -> psutil.Process | None:
    try:
        process = psutil.Process(record.pid)
        if _start_mark(record.pid) != record.started:
            return None
        if process.status() == psutil.STATUS_ZOMBIE and _is_over(record.pid):
            return None
    except psutil.NoSuchProcess:
        return None
    return process


def _is_over(pid: int) -> bool:
    """Reap a child; return False while its last threads are still exiting, although it is already a zombie."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # not our child: its parent reaps it
        return True


def start(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    environment: Mapping[str, str],
    inherited: Collection[int] = (),
) -> ProcessRecord:
    """Start the command in the background and append its output to the log. Raise OSError if it cannot be started.

    The process inherits the file descriptors ``inherited``, which the caller closes.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    process.returncode = 0  # it outlives this object on purpose; without this the interpreter warns
    return ProcessRecord(process.pid, _start_mark(process.pid))


def is_alive(record: ProcessRecord) -> bool:
    """Return whether exactly this process is still running; a zombie is not."""
    return _find(record) is not None


def find_in_directory(directory: Path, names: Iterable[str]) -> list[ProcessRecord]:
    """Return our processes of these components that run in the directory, recorded or not.

    The name of a component is that of its program, or of the file of this package that Python runs.
    """
    wanted = frozenset(names)
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has exited, or belongs to another user
            files = map(Path, process.cmdline())
            ours = {file.stem for file in files if file.parent == Path(__file__).parent}
            if process.cwd() == str(directory) and wanted & {Path(process.exe()).name, *ours}:
                found.append(ProcessRecord(process.pid, _start_mark(process.pid)))
    return found


def memory_bytes(record: ProcessRecord) -> int:
    """Return the resident memory of the process, 0 if it has exited."""
    process = _find(record)
    try:
        return int(process.memory_info().rss) if process else 0
    except psutil.NoSuchProcess:
        return 0


def end(records: Iterable[ProcessRecord], *, grace_seconds: float) -> None:
    """Stop the processes and wait until they have exited: SIGTERM, then SIGKILL after the grace (0: immediately)."""
    alive = list(records)
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, KILL_WAIT_SECONDS)):
        if seconds > 0:
            for process in filter(None, map(_find, alive)):
                with suppress(psutil.NoSuchProcess):  # it exited by itself in the meantime
                    process.send_signal(number)
            alive = _wait_until_gone(alive, seconds)


def _wait_until_gone(records: Iterable[ProcessRecord], seconds: float) -> list[ProcessRecord]:
    """Wait for the processes for at most this time; return those that are still running."""
    deadline = time.monotonic() + seconds
    while (alive := [record for record in records if is_alive(record)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return alive


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a log, an empty list if there is no log."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=count)]
    except FileNotFoundError:
        return []


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open_and_lock(path: Path, when_waiting: Callable[[], None]) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(path: Path, *, when_waiting: Callable[[], None] = lambda: None, remove: bool = False) -> Iterator[None]:
    """Hold the lock; call ``when_waiting`` if another process has it; with ``remove``, delete the file at the end."""
    while True:
        try:
            descriptor = _open_and_lock(path, when_waiting)
        except FileNotFoundError:  # the directory was removed after its creation
            continue
        if _is_same_file(descriptor, path):
            break
        os.close(descriptor)  # the former holder removed the file that we waited for
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)
        os.close(descriptor)


@dataclass
class State:
    """The saved state of a control plane that is starting or running."""

    port: int
    nodes: int
    programs: dict[str, str]
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    is_ready: bool = False
    kubelet_port: int = 0
    keeps_history: bool = False


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

    def create_directories(self) -> None:
        """Create the directories of a new control plane."""
        for directory in (self.layout.root, self.layout.certificates, self.layout.log("any").parent):
            directory.mkdir(mode=0o700)

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
