"""A process that runs the modules of a run one after the other, instead of a fork of ansible-playbook for each.

A forked module costs two thousand page faults: it writes to memory that it shares with ansible-playbook, and so does
ansible-playbook afterward. The host is forked once, when a process runs its first module, and keeps what it has copied.

A module must not notice. Before each one, the host sets the standard streams, the environment, the working directory,
and the arguments again. After it, the host calls exit hooks, as an interpreter does at its end, and puts back what a
module may have changed, see ``_Baseline``. **What it can't put back ends the host** after the result of the module, and
the next module gets a new one. If the host ends before that, because the module has left threads to wait for, or kills
it, the module has the exit code of the process, and what it has written: the parent has the streams, files in memory.
"""

import gc
import locale
import os
import pickle
import resource
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from itertools import chain
from operator import is_
from types import ModuleType
from typing import Any, Final, NamedTuple, Self

from rolecall.runner.warm.forked_child import (
    INTERRUPTED,
    close_descriptors_except,
    exit_code_of,
    open_standard_streams,
    reset_signals,
    run_and_exit,
    run_exit_hooks,
    set_standard_streams,
)
from rolecall.runner.warm.shared_objects import CodeInUse

GROWTH_LIMIT_BYTES: Final = 32 << 20
"""By how much a host may grow before it ends: the memory of a module is freed when its process ends."""

_COLLECTED_BYTES: Final = 4 << 20
"""By how much a host grows between two searches for garbage."""

_RESTORED: Final = (
    "ansible.module_utils",
    "ansible_collections",
    "builtins",
    "kubernetes.config",
    "kubernetes.dynamic",
)
"""The modules, by the start of their names, whose variables are put back."""

_FORGOTTEN: Final = ("ansible.", "ansible_collections.")
"""The modules, by the start of their names, that a new process would read from their files again."""

_ROUTING: Final = "_collection_meta"
"""What ansible-core's loader of collections has read of one, thousands of values: no module changes it."""

_CLIENT: Final = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.client"
_CONFIGURATION: Final = "kubernetes.client.configuration"
_SIZE_BYTES: Final = 8
_ANSWER_BYTES: Final = 4096
_LIMITS: Final = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
_SETTINGS: Final[tuple[Callable[[], object], ...]] = (
    gc.isenabled,
    socket.getdefaulttimeout,
    sys.getprofile,
    sys.getrecursionlimit,
    sys.gettrace,
    lambda: (sys.displayhook, sys.excepthook, sys.unraisablehook, threading.excepthook),
)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Ended(NamedTuple):
    """How a module ended: the exit code, or None and the status of its process, and what it has written."""

    code: int | None
    status: int
    out: bytes
    err: bytes
    reason: str
    """Why the host has ended too; empty if it hasn't."""


@dataclass(slots=True)
class ModuleHost:
    """The host, as the process sees it that has forked it."""

    pid: int
    parent: int
    ended: FileIO
    """Readable when the process has ended."""

    channel: socket.socket
    streams: tuple[FileIO, FileIO]
    """Standard output and standard error."""

    @classmethod
    def start(
        cls,
        run: Callable[[Any], None],
        close_connections: Callable[[], None],
        kept: Iterable[int],
        code: CodeInUse | None,
        *,
        own_session: bool,
    ) -> Self:
        """Fork a host that calls ``run`` with what ``ModuleHost.run`` gets. Raises OSError.

        ``close_connections`` closes all connections of a process, ``kept`` are the descriptors that modules use, and
        ``code`` receives the functions that they have used.
        """
        out, err = (FileIO(os.memfd_create(name), "r+") for name in ("stdout", "stderr"))
        channel, other = socket.socketpair()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            if own_session:
                os.setsid()
            channel.close()
            run_and_exit(lambda: _serve(run, close_connections, other, (out.fileno(), err.fileno()), kept), code)
        other.close()
        return cls(pid, parent, FileIO(os.pidfd_open(pid), "r"), channel, (out, err))

    def run(self, call: object) -> Ended:
        """Run a module to its end, or to the end of the host."""
        message = pickle.dumps(call)
        with suppress(BrokenPipeError, ConnectionResetError):  # its end is seen below
            self.channel.sendall(len(message).to_bytes(_SIZE_BYTES) + message)
        waiting = select.poll()
        for each in (self.channel, self.ended):
            waiting.register(each, select.POLLIN)
        waiting.poll()
        answer = b""
        with suppress(BlockingIOError, ConnectionResetError):  # another process may have its end of the channel
            answer = self.channel.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)
        code, _, reason = answer.decode().partition(" ")
        status = self._wait() if reason or not answer else 0
        out, err = map(_taken, self.streams)
        if reason or not answer:
            self.close()
        return Ended(int(code) if answer else None, status, out, err, reason if answer else "its process has ended")

    def end(self) -> None:
        """End it after its last module."""
        self._wait()
        self.close()

    def kill(self) -> None:
        """Kill it: its parent no longer waits for its module."""
        os.kill(self.pid, signal.SIGKILL)
        self.end()

    def close(self) -> None:
        """Close what this process has of it."""
        for each in (self.ended, self.channel, *self.streams):
            each.close()

    def _wait(self) -> int:
        with suppress(OSError):  # it has died
            self.channel.shutdown(socket.SHUT_WR)
        _, status = os.waitpid(self.pid, 0)
        return status


def _taken(stream: FileIO) -> bytes:
    """Return the content of a file in memory, and remove it."""
    stream.seek(0)
    content = stream.readall() or b""
    stream.truncate(0)
    return content


def _serve(
    run: Callable[[Any], None],
    close_connections: Callable[[], None],
    channel: socket.socket,
    streams: tuple[int, int],
    kept: Iterable[int],
) -> None:
    """Run modules until the parent closes its end, or until one has left something behind."""
    reset_signals()
    set_standard_streams(os.open(os.devnull, os.O_RDONLY), *streams)
    close_descriptors_except({*kept, channel.fileno()})
    gc.freeze()
    baseline = _Baseline(close_connections)
    while message := _received(channel):
        call = pickle.loads(message)  # noqa: S301 - from the process that has forked this one
        for stream in (1, 2):
            os.lseek(stream, 0, os.SEEK_SET)
        open_standard_streams()
        code = exit_code_of(partial(run, call))
        if any(not each.daemon for each in threading.enumerate() if each is not threading.current_thread()):
            sys.exit(code)  # an executor's threads end only with their process, which then is the answer
        run_exit_hooks()
        if code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        reason = baseline.put_back()
        channel.sendall(f"{code} {reason}"[: _ANSWER_BYTES // 4].encode())
        if reason:
            return


def _received(channel: socket.socket) -> bytes:
    """Return a message, empty at the end of the channel."""
    with channel.makefile("rb", buffering=0) as file:
        left = int.from_bytes(file.read(_SIZE_BYTES) or b"")
        parts = []
        while left and (part := file.read(left)):
            parts.append(part)
            left -= len(part)
    return b"".join(parts) if not left else b""


class _Baseline:
    """The state of this process before its first module."""

    def __init__(self, close_connections: Callable[[], None]) -> None:
        self._process = _process_state()
        self._close_connections = close_connections
        self._memory = self._collected = _memory_bytes()
        self._umask = _umask()
        self._locale = locale.setlocale(locale.LC_ALL)
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lists: tuple[Any, ...] = (sys.path, sys.meta_path, sys.path_hooks, warnings.filters)
        self._lists = [(each, list(each)) for each in lists]
        self._modules = set(sys.modules)
        self._variables = _Variables(each for name, each in sys.modules.items() if name.startswith(_RESTORED))

    def put_back(self) -> str:
        """Put back what a module has changed; return what can't be put back, empty if everything is as it was."""
        self._close_connections()
        _forget_clients()
        for live, before in self._lists:
            if live != before:
                live[:] = before
        warnings._filters_mutated()  # type: ignore[attr-defined] # noqa: SLF001 - so that they show each warning again
        for name in sys.modules.keys() - self._modules:
            if name.startswith(_FORGOTTEN):
                del sys.modules[name]
            else:
                self._modules.add(name)
        self._variables.put_back()
        os.umask(self._umask)
        locale.setlocale(locale.LC_ALL, self._locale)
        with suppress(ValueError, OSError):  # seen below
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
        now = _process_state()
        if changed := [name for name, value in now.items() if value != self._process[name]]:
            return f"the module has changed its {', '.join(changed)}"
        return self._growth()

    def _growth(self) -> str:
        memory = _memory_bytes()
        if memory - self._collected > _COLLECTED_BYTES:
            gc.collect()
            memory = self._collected = _memory_bytes()
        return f"it has grown by {memory - self._memory} bytes" if memory - self._memory > GROWTH_LIMIT_BYTES else ""


def _forget_clients() -> None:
    """Drop the clients of the API server, and the configuration of the last one."""
    if module := sys.modules.get(_CLIENT):
        module._pool.clear()  # noqa: SLF001 - there is no public way
    if module := sys.modules.get(_CONFIGURATION):
        module.Configuration._default = None  # noqa: SLF001 - as above


def _process_state() -> dict[str, object]:
    """Return what belongs to the process, by names for people."""
    children: object = None
    with suppress(ChildProcessError):
        children = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) or "running"
    return {
        "child processes": children,
        "descriptors": os.listdir("/proc/self/fd"),  # noqa: PTH208 - cheaper, and it is done for each module
        "limits": [resource.getrlimit(each) for each in _LIMITS],
        "session": (os.getsid(0), os.getpgid(0), os.getpriority(os.PRIO_PROCESS, 0)),
        "settings of Python": [each() for each in _SETTINGS],
        "signals": ([*map(signal.getsignal, signal.valid_signals())], signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "threads": threading.active_count(),
        "timers": [signal.getitimer(each)[0] > 0 for each in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
        "user or groups": (os.getresuid(), os.getresgid(), os.getgroups()),
    }


def _memory_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - cheaper, and it is done for each module
        return int(file.read().split()[1]) * _PAGE_BYTES


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


class _Variables:
    """The variables of modules: their values, and the content of those that are lists, mappings, and sets."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._live = [vars(each) for each in modules]
        self._before = [dict(each) for each in self._live]
        named = chain.from_iterable(map(dict.items, self._before))
        found = {id(each): each for name, each in named if type(each) in (dict, list, set) and name != _ROUTING}
        # Every module has the dictionary of the built-in functions, which is among the variables already.
        self._containers = [found[number] for number in found.keys() - set(map(id, self._live))]
        self._contents = [_content_of(each) for each in self._containers]

    def put_back(self) -> None:
        """Give each variable its value and its content again; usually, few have changed."""
        for live, before in zip(self._live, self._before, strict=True):
            if len(live) != len(before) or not all(map(is_, live.values(), before.values())):
                live.clear()
                live.update(before)
        if self._containers != self._contents:
            for live, content in zip(self._containers, self._contents, strict=True):
                if live != content:
                    live.clear()
                    add = live.extend if isinstance(live, list) else live.update
                    add(_content_of(content))


def _content_of(value: Any) -> Any:
    """Return a copy of a container, and of those in it."""
    if type(value) is dict:
        return {name: _content_of(each) for name, each in value.items()}
    if type(value) in (list, set, tuple):
        return type(value)(map(_content_of, value))
    return value
