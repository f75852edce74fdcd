"""The fork server: ``python -P -m rolecall.runner.warm.server DESCRIPTOR DIRECTORY GROWTH ROOM [CONTENT...]``.

It imports what runs need and then waits on an inherited socket. Each request carries the three standard descriptors of
a run, and those of its discovery if it has one. The server forks a child for it, which does what
``rolecall.runner.runs.runner_process`` does. It sends the operator the child's process id and a pidfd, and later its
exit code. A request for which it cannot fork fails alone. It is single-threaded and runs nothing itself. It ends
when the operator does, and its children end when it does.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NoReturn

import pexpect

from rolecall.runner.runs import runner_process
from rolecall.runner.runs.discovery_image import RunDiscovery
from rolecall.runner.runs.process_marks import RUN_VARIABLE, RUNNER_MODULE
from rolecall.runner.warm.ansible_patches import kubernetes_connections
from rolecall.runner.warm.ansible_patches.event_channel import EventChannel, use_event_channel
from rolecall.runner.warm.ansible_patches.patches import PATCHES, PatchStatus, can_fork, installed_patches
from rolecall.runner.warm.ansible_patches.task_placement import TaskPlacement
from rolecall.runner.warm.forked_child import (
    SLOT_VARIABLE,
    ProcessTitles,
    close_descriptors_except,
    reset_signals,
    set_environment,
    set_standard_streams,
    signal_on_parent_death,
)
from rolecall.runner.warm.freshness import Freshness
from rolecall.runner.warm.playbook_process import ForkContext, fork_spawn_class
from rolecall.runner.warm.preload import Preparation, preload

MODULE = "rolecall.runner.warm.server"
MESSAGE_LIMIT_BYTES = 4096
_STANDARD_DESCRIPTORS = 3
_MOST_DESCRIPTORS = 5


@dataclass(frozen=True, slots=True)
class _Server:
    control: socket.socket
    titles: ProcessTitles
    environment: Mapping[str, str]
    freshness: Freshness
    children: dict[int, str]
    preparations: Sequence[Preparation]
    patches: Sequence[PatchStatus]

    def serve(self) -> None:
        """Fork children until the operator closes its end."""
        woken = _wake_up_on_children()
        with selectors.DefaultSelector() as selector:
            selector.register(self.control, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if woken in ready:
                    os.read(woken, MESSAGE_LIMIT_BYTES)
                    self._reap()
                if self.control.fileno() in ready and not self._answer():
                    return

    def _answer(self) -> bool:
        """Fork for the next request; return whether there can be more."""
        message, descriptors, _, _ = socket.recv_fds(self.control, MESSAGE_LIMIT_BYTES, _MOST_DESCRIPTORS)
        if not message:
            return False
        request = json.loads(message)
        ident = request["start"]
        try:
            if reason := self.freshness.lost():
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
            self._run_child(ident, descriptors, server)
        try:
            # Here, because the number belongs to this child until the server has reaped it.
            descriptor = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
        self.children[pid] = ident
        self._send({"started": ident, "pid": pid}, descriptor)
        os.close(descriptor)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if ident := self.children.pop(pid, ""):
                    self._send({"ended": ident, "code": os.waitstatus_to_exitcode(status)})

    def _send(self, message: Mapping[str, object], *descriptors: int) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [json.dumps(message).encode()], descriptors)

    def _run_child(self, ident: str, descriptors: list[int], server: int) -> NoReturn:
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
            notes = runner_process.Notes()
            channel = EventChannel()
            patches = {status.name: status for status in self.patches}
            context = ForkContext(
                server_environment=self.environment,
                titles=self.titles,
                add_note=notes.add,
                note_descriptor=notes.descriptor,
                event_descriptor=channel.descriptor,
                patches=patches,
                apply_patches=self._apply_patches,
                discovery=discovery,
            )
            pexpect.spawn = fork_spawn_class(context)
            uses_channel = patches["event-channel"].is_in_use
            runner_process.main(notes, lambda runner: use_event_channel(runner, channel) if uses_channel else None)
        except BaseException:  # noqa: BLE001 - whatever it is, the operator adds it to the failure of the run
            traceback.print_exc()
        finally:
            os._exit(1)  # ``main`` exits by itself; an exception must not return into the server

    def _apply_patches(self, context: ForkContext) -> None:
        apply_patches(context)
        for preparation in self.preparations:
            preparation.install()


def main() -> None:
    """Prepare, report that the server is ready, and serve until the operator is gone."""
    descriptor, server_directory, growth_limit_bytes, _room, *contents = sys.argv[1:]
    control = socket.socket(fileno=int(descriptor))
    titles = ProcessTitles.find()
    del os.environ[SLOT_VARIABLE]
    titles.rename(sys.executable, "-P", "-m", MODULE)
    directory = os.getcwd()  # noqa: PTH109 - as it is
    environment = _environment_of_a_run(Path(server_directory))
    set_environment(environment)
    os.chdir(Path(server_directory) / "project")
    sys.path.insert(_user_paths(), str(runner_process.COLLECTIONS))
    patches, preparations = installed_patches(), list[Preparation]()
    if can_fork(patches):
        patches, preparations = preload([Path(content) for content in contents], patches)
    os.chdir(directory)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20000, 50, 100)
    server = _Server(control, titles, environment, Freshness.now(int(growth_limit_bytes)), {}, preparations, patches)
    control.send(json.dumps({"ready": [astuple(status) for status in patches]}).encode())
    server.serve()
    os._exit(0)  # the operator removes the directory, and the exit hooks of Ansible are for runs


def _environment_of_a_run(directory: Path) -> dict[str, str]:
    """Return the environment that ansible-runner gives to every run of this operator."""
    run = runner_process.RunnerInput(ident="warm", workspace=str(directory), role=str(directory / "role"))
    for name in ("project", "inventory", "env"):
        (directory / name).mkdir()
    (directory / "inventory" / "hosts").write_text("localhost\n")
    return dict(runner_process.configure(run).config.env)


def _user_paths() -> int:
    """Return how many entries of PYTHONPATH are at the front of ``sys.path``."""
    return sum(1 for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part in sys.path[:8])


def _wake_up_on_children() -> int:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return reading


def apply_patches(context: ForkContext) -> None:
    """Install the patches in use, in the child that becomes ansible-playbook."""
    placement = TaskPlacement()
    kubernetes_connections.install()
    arguments: dict[str, tuple[object, ...]] = {
        "caller-frames": (),
        "temporary-directories": (),
        "forked-modules": (context, placement),
        "in-process-tasks": (placement,),
        "trusted-templates": (),
    }
    if context.discovery:
        arguments["known-discovery"] = context.discovery, os.environ.get("K8S_AUTH_HOST", "")
    for patch in PATCHES:
        if patch.name in arguments and context.has(patch.name):
            patch.load().install(*arguments[patch.name])


if __name__ == "__main__":
    main()
