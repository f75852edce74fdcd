"""A process that can change no file of the caller: other projects' code runs as ``isolation.py PLAN COMMAND...``.

Code of other projects writes only to directories made for it, and can't read the caller's home directory. In a mount
namespace of its own, all file systems are read-only. The home directories (that of the environment, and that of the
password file, from which programs resolve ``~``) are an empty directory; ``/tmp`` and similar directories are empty
too, and so are ``/run``, whose sockets reach programs that could write for the process, and ``/dev``, except terminals
and devices without content. Named directories, such as the Python environment, are visible again. The process has no
capability, so it can't undo this.

Requires Linux 5.12, and permission for user namespaces unless the caller is root. Imports only the standard library.
"""

import ctypes
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- hidden, not used
_SHOWN: Final = (
    *(Path("/dev", name) for name in ("null", "zero", "full", "random", "urandom", "tty")),
    Path("/etc/resolv.conf"),  # often a link to /run
)
_LINKS: Final = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdout": "fd/1", "stderr": "fd/2", "stdin": "fd/0"}
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_DROP_CAPABILITY, _NO_NEW_PRIVILEGES, _CAPABILITIES_3 = 24, 38, 0x20080522
_MAX_CAPABILITIES: Final = 64
_KERNEL: Final = ctypes.CDLL(None, use_errno=True)


class IsolationError(RuntimeError):
    """Processes can't be isolated here, or a directory to show contains a hidden one."""


def check() -> None:
    """Start an isolated process that does nothing. Raises IsolationError if that isn't possible."""
    with tempfile.TemporaryDirectory() as directory:
        command = isolated([sys.executable, "-c", ""], Path(directory))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise IsolationError(
            f"other projects' code can't be kept away from your files: {done.stderr.strip()}; use Linux 5.12 or newer, "
            "and either permit user namespaces or run as root with CAP_SYS_ADMIN"
        )


def isolated(
    command: Sequence[str], directory: Path, *, readable: Iterable[Path] = (), writable: Iterable[Path] = ()
) -> list[str]:
    """Return the command of an isolated process.

    `directory` belongs to this process: its ``home`` is the home directory, and its ``tmp`` replaces ``/tmp``. Beside
    them, the process writes to `writable`, and reads `readable` (files and directories, and what programs there are
    links to), its program, this repository, and its Python environment. Raises IsolationError.
    """
    home, temporary, run, devices = ((directory / name).resolve() for name in ("home", "tmp", "run", "dev"))
    for path in (home, temporary, run, devices):
        path.mkdir(exist_ok=True)
    if not any(devices.iterdir()):
        (devices / "pts").mkdir()
        for name, target in _LINKS.items():
            (devices / name).symlink_to(target)
    homes = {path for path in _homes() if path.is_dir() and path != Path("/")}
    hidden = {Path(each).resolve(): temporary for each in (*_TEMPORARY, tempfile.gettempdir())}
    hidden |= {Path("/run").resolve(): run, Path("/dev"): devices, **dict.fromkeys(homes, home)}
    named = [Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix), *readable, *writable]
    for path in named:
        if inside := next((place for place in homes if place.is_relative_to(path.resolve())), None):
            raise IsolationError(f"{path} contains the home directory {inside}, which stays hidden from other projects")
    programs = (Path(sys.executable).parent, Path(command[0]).parent, *readable)
    linked = (path for each in programs for path in _linked(each.absolute()))
    shown = [path for path in linked if not any(place.is_relative_to(path.resolve()) for place in homes)]
    plan = {
        "hidden": {str(place): str(source) for place, source in hidden.items() if place.is_dir()},
        "shown": [str(path.absolute()) for path in (*named, *shown, *_SHOWN)],
        "writable": [str(path.resolve()) for path in (home, *writable)],
    }
    return [sys.executable, "-I", __file__, json.dumps(plan), *command]


def _homes() -> Iterator[Path]:
    """Yield the caller's home directories."""
    with suppress(KeyError):
        yield Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    if "HOME" in os.environ:
        yield Path(os.environ["HOME"]).resolve()


def _linked(programs: Path) -> Iterator[Path]:
    """Yield a directory of programs, its virtual environment, and the installations that its links refer to."""
    yield programs
    if (programs.parent / "pyvenv.cfg").exists():
        yield programs.parent
    for each in programs.iterdir() if programs.is_dir() else ():
        if each.is_symlink() and each.exists():
            for target in (programs / each.readlink(), each.resolve()):
                yield target.parent.parent if target.parent.name == "bin" else target


def _enter(plan: dict[str, Any]) -> None:
    """Enter the namespaces that a plan describes, without capabilities. Raises OSError."""
    directory = Path.cwd()
    _unshare()
    _call("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    mounts = [(place, source, True) for place, source in plan["hidden"].items()]
    mounts += [(path, path, False) for path in map(os.path.realpath, plan["shown"]) if Path(path).exists()]
    mounts += [(path, path, True) for path in plan["writable"]]
    opened = {source: os.open(source, os.O_PATH) for _, source, _ in mounts}  # hidden places contain most of them
    _set_read_only("/", _AT_RECURSIVE, value=True)
    places = [Path(place) for place in plan["hidden"]]
    for target, source, is_writable in sorted(mounts, key=lambda mount: (mount[0].count("/"), mount[1] == mount[0])):
        if is_writable or any(Path(target).is_relative_to(place) for place in places):
            _bind(opened[source], target)
            _set_read_only(target, 0, value=not is_writable)
    for path in plan["shown"]:
        if not os.path.lexists(path) and (source := opened.get(os.path.realpath(path))):
            _bind(source, path)
    _call("mount", b"devpts", b"/dev/pts", b"devpts", 0, b"newinstance,ptmxmode=0666,mode=0620")
    os.chdir(directory)  # the old one is below the new mounts
    for number in range(_MAX_CAPABILITIES):
        with suppress(OSError):  # this kernel has fewer
            _call("prctl", _DROP_CAPABILITY, number, 0, 0, 0)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call("capset", (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)())


def _unshare() -> None:
    """Create a mount namespace that belongs to a user namespace, or, if root may create none, to the caller's."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEW_MOUNTS | _NEW_USER)
    except OSError:
        _call("unshare", _NEW_MOUNTS)
        return
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def _bind(source: int, target: str) -> None:
    descriptor, path = Path(f"/proc/self/fd/{source}"), Path(target)
    if descriptor.is_dir():
        path.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _call("mount", bytes(descriptor), target.encode(), None, _BIND | _RECURSIVE, None)


def _set_read_only(path: str, flags: int, *, value: bool) -> None:
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY if value else 0, 0 if value else _READ_ONLY, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, ctypes.byref(attributes), size)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_KERNEL, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    for caught in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(caught, signal.SIG_DFL)  # Python ignores them, and the command would inherit that
    try:
        _enter(json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"isolation failed: {error}")
    os.environ.pop("TMPDIR", None)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 -- the command has its own arguments
