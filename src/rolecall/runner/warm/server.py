"""The fork server: ``python -P -m rolecall.runner.warm.server DESCRIPTOR DIRECTORY ROOM [CONTENT...]``.

It imports what runs need and then waits on an inherited socket. Each request carries the three standard descriptors of
a run, and those of its discovery if it has one. The server forks a child for it, which does what
``rolecall.runner.runs.runner_process`` does. It sends the operator the child's process id and a pidfd, and later its
exit code. A request for which it can't fork fails alone. It is single-threaded and runs nothing itself. It ends when
the operator does, and its children end when it does.

Plugins, modules, collections and ansible.cfg may change while the operator runs; a run that starts after a change must
see it. So the server checks every file that it has loaded before each fork, which takes less than a millisecond for a
few hundred files: no change is missed and nothing has to be watched.
"""

import errno
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NoReturn, Self

import pexpect
import psutil

from rolecall.runner.runs import runner_process
from rolecall.runner.runs.discovery_image import RunDiscovery
from rolecall.runner.runs.process_marks import RUN_VARIABLE, RUNNER_MODULE
from rolecall.runner.warm.ansible_patches.event_channel import EventChannel, use_event_channel
from rolecall.runner.warm.ansible_patches.patches import (
    SHARED_OBJECTS,
    PatchStatus,
    installed_patches,
    names_in_use,
)
from rolecall.runner.warm.forked_child import (
    SLOT_VARIABLE,
    ProcessTitles,
    close_descriptors_except,
    reset_signals,
    set_environment,
    set_standard_streams,
)
from rolecall.runner.warm.playbook_process import ForkContext, fork_spawn_class
from rolecall.runner.warm.preload import preload
from rolecall.runner.warm.shared_objects import CodeInUse, share_objects, take_free_blocks
from rolecall.system.files import ChangingFiles
from rolecall.system.imports import collect_rarely
from rolecall.system.processes import signal_on_parent_death

MODULE = "rolecall.runner.warm.server"
_MESSAGE_LIMIT_BYTES = 4096
_STANDARD_DESCRIPTORS = 3
_MAX_DESCRIPTORS = 5
GROWTH_LIMIT_BYTES = 64 * 1024 * 1024
"""By how much the server may grow before it is replaced. It runs nothing, so it should not grow at all."""

_REPORTING_RUNS = 5
_WATCHED_PACKAGES = ("ansible", "ansible_collections", "ansible_runner", "rolecall")


def main() -> None:
    """Prepare, report that the server is ready, and serve until the operator has ended."""
    descriptor, server_directory, _room, *contents = sys.argv[1:]
    control = socket.socket(fileno=int(descriptor))
    titles = ProcessTitles.find()
    del os.environ[SLOT_VARIABLE]
    titles.rename(sys.executable, "-P", "-m", MODULE)
    directory = os.getcwd()  # noqa: PTH109 - as it is
    environment = _environment_of_a_run(Path(server_directory))
    set_environment(environment)
    os.chdir(Path(server_directory) / "project")
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # it is at the front of sys.path, and stays there
    sys.path.insert(sum(part in sys.path[:8] for part in python_path), str(runner_process.COLLECTIONS))
    patches, preparations = installed_patches(), list[Callable[[], None]]()
    gc.disable()  # collections during many imports find nothing; the one below finds what the preparation leaves
    if "fork" in names_in_use(patches):
        patches, preparations = preload([Path(content) for content in contents], patches)
    os.chdir(directory)
    gc.collect()
    patches, code = _share_objects(patches)
    gc.freeze()
    collect_rarely()  # in its children, too
    gc.enable()
    server = _Server(control, titles, environment, LoadedState.now(), {}, preparations, names_in_use(patches), code)
    with suppress(BrokenPipeError):  # the operator has ended in the meantime
        control.send(json.dumps({"ready": [astuple(status) for status in patches]}).encode())
        server.serve()
    os._exit(0)  # the operator removes the directory, and the exit hooks of Ansible are for runs


def _share_objects(patches: list[PatchStatus]) -> tuple[list[PatchStatus], CodeInUse | None]:
    """Let runs share the objects of this process as far as possible; return the patches as they are then."""
    if SHARED_OBJECTS not in names_in_use(patches):
        take_free_blocks()
        return patches, None
    gc.unfreeze()  # frozen objects are not listed
    code = CodeInUse.find()
    take_free_blocks()
    try:
        share_objects()
    except Exception as error:  # noqa: BLE001 - whatever it is, runs can do without the patch
        disabled = PatchStatus(SHARED_OBJECTS, "disabled", str(error))
        return [disabled if each.name == SHARED_OBJECTS else each for each in patches], None
    return patches, code


def _environment_of_a_run(directory: Path) -> dict[str, str]:
    """Return the environment that ansible-runner gives to every run of this operator."""
    temporary, role = str(directory / "tmp"), str(directory / "role")
    run = runner_process.RunnerInput(ident="warm", workspace=str(directory), temporary=temporary, role=role)
    for name in ("project", "inventory", "env"):
        (directory / name).mkdir()
    (directory / "inventory" / "hosts").write_text("localhost\n")
    return dict(runner_process.configure(run).config.env)


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The state of the files and directories that this process has loaded, and of its memory, at one time."""

    files: ChangingFiles
    memory_bytes: int

    @classmethod
    def now(cls) -> Self:
        """Record the state of everything that this process has loaded.

        The directories of modules and plugins count too: a new file there may take precedence over another one. So does
        every path where ansible-core looks for ansible.cfg, except the directory of a run.
        """
        modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] in _WATCHED_PACKAGES]
        loaded = {path for each in modules if (path := getattr(each, "__file__", None)) and not path.startswith("<")}
        directories = {os.path.dirname(path) for path in loaded}  # noqa: PTH120 - plain text, and many
        configurations = {os.path.expanduser("~/.ansible.cfg"), "/etc/ansible/ansible.cfg"}  # noqa: PTH111 - pathlib raises without a known home
        if named := os.environ.get("ANSIBLE_CONFIG"):
            configurations.add(named)
        files = ChangingFiles()
        files.record(sorted(loaded | directories | configurations))
        return cls(files, _memory_bytes())

    def difference(self) -> str:
        """Return the change since then; an empty string if there is none."""
        if path := self.files.changed:
            return f"{path} has changed"
        growth = _memory_bytes() - self.memory_bytes
        return f"the server has grown by {growth} bytes" if growth > GROWTH_LIMIT_BYTES else ""


def _memory_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


@dataclass(slots=True)
class _Server:
    control: socket.socket
    titles: ProcessTitles
    environment: Mapping[str, str]
    loaded: LoadedState
    children: dict[int, str]
    preparations: Sequence[Callable[[], None]]
    patches: Collection[str]
    code: CodeInUse | None
    reporting_runs: int = _REPORTING_RUNS
    """How many more runs report the functions that they use."""

    def serve(self) -> None:
        """Fork children until the operator closes its end."""
        reading = runner_process.wake_up_on(signal.SIGCHLD)
        with selectors.DefaultSelector() as selector:
            selector.register(self.control, selectors.EVENT_READ)
            selector.register(reading, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if reading in ready:
                    os.read(reading, _MESSAGE_LIMIT_BYTES)
                    self.reap()
                if self.control.fileno() in ready and not self.handle_request():
                    return

    def handle_request(self) -> bool:
        """Fork for the next request; return whether there can be more."""
        message, descriptors, _, _ = socket.recv_fds(self.control, _MESSAGE_LIMIT_BYTES, _MAX_DESCRIPTORS)
        if not message:
            return False
        request = json.loads(message)
        ident = request["start"]
        try:
            if reason := self.loaded.difference():
                self._send({"stale": ident, "reason": reason})
            else:
                self._start(ident, descriptors, request["descriptors"])
        except OSError as error:
            self._send({"failed": ident, "reason": f"the fork server cannot fork: {error}"})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _start(self, ident: str, descriptors: list[int], sent: int) -> None:
        if len(descriptors) < sent:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.run_child(ident, descriptors, server)
        try:
            # Here, because the number belongs to this child until the server has reaped it.
            descriptor = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
        self.children[pid] = ident
        self._send({"started": ident, "pid": pid}, descriptor)
        os.close(descriptor)

    def reap(self) -> None:
        """Report the exit code of each child that has ended, and use what it has reported."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if ident := self.children.pop(pid, ""):
                    self._send({"ended": ident, "code": os.waitstatus_to_exitcode(status)})
                    if self.code and self.reporting_runs:
                        self.code.bring_together()
                        self.reporting_runs -= 1

    def _send(self, message: Mapping[str, object], *descriptors: int) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [json.dumps(message).encode()], descriptors)

    def run_child(self, ident: str, descriptors: list[int], server: int) -> NoReturn:
        """Become the process of a run."""
        try:
            reset_signals()
            os.setsid()
            set_standard_streams(*descriptors[:_STANDARD_DESCRIPTORS])
            # In this order: an operator that starts now kills whatever has a mark and is not below this program.
            self.titles.rename(sys.executable, "-P", "-m", RUNNER_MODULE)
            self.titles.mark(ident)
            given = descriptors[_STANDARD_DESCRIPTORS:]
            discovery = RunDiscovery.receive(*given) if given else None
            close_descriptors_except([discovery.descriptor] if discovery else ())
            signal_on_parent_death(server, runner_process.PARENT_DIED)
            surroundings = json.loads(sys.stdin.buffer.readline())
            os.chdir(surroundings["directory"])
            set_environment(surroundings["environment"] | {RUN_VARIABLE: ident})
            notes, channel = runner_process.Notes(), EventChannel()
            context = ForkContext(
                server_environment=self.environment,
                titles=self.titles,
                add_note=notes.add,
                note_descriptor=notes.descriptor,
                event_descriptor=channel.descriptor,
                patches=self.patches,
                preparations=self.preparations,
                discovery=discovery,
                code=self.code if self.reporting_runs else None,
            )
            pexpect.spawn = fork_spawn_class(context)
            uses_channel = "event-channel" in self.patches
            runner_process.main(
                notes,
                lambda runner: use_event_channel(runner, channel) if uses_channel else None,
                context.code.report if context.code else lambda: None,
            )
        except BaseException:  # noqa: BLE001 - whatever it is, the operator adds it to the failure of the run
            traceback.print_exc()
        finally:
            os._exit(1)  # ``main`` exits by itself; an exception must not return into the server


if __name__ == "__main__":
    main()
