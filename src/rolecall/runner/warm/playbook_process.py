"""ansible-playbook as a forked child on a terminal, instead of a new interpreter.

``ForkSpawn`` replaces ``pexpect.spawn`` in the process of one run, so that ansible-runner stays the driver. The state
that ansible-core computed when the server imported it is reset for the run. A run whose environment differs from the
server's in more than the variables that are specific to each run gets a new interpreter.

With some of the patches, a task may start in the process of ansible-playbook and turn out to need a worker. It is then
abandoned and restarts in a worker. The worker receives the results of the modules that have run already, so that
nothing is done twice.
"""

import os
import sys
import termios
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import pexpect
import ptyprocess
import urllib3

from rolecall.runner.runs.discovery_image import PROXY_VARIABLE, RunDiscovery
from rolecall.runner.runs.runner_process import PROGRAM_COMMAND
from rolecall.runner.warm.ansible_patches import reset_state
from rolecall.runner.warm.ansible_patches.patches import PATCHES
from rolecall.runner.warm.forked_child import (
    ProcessTitles,
    close_descriptors_except,
    open_standard_streams,
    reset_signals,
    run_and_exit,
    set_environment,
)
from rolecall.runner.warm.shared_objects import CodeInUse
from rolecall.system.wrapping import wrap

PROGRAM = "ansible-playbook"
_READ_BYTES = 65536
_RELEVANT_PREFIXES = ("ANSIBLE_", "_ANSIBLE_", "PYTHON", "LC_", "LD_", "AWX_", "ORIGINAL_STDOUT_")
_RELEVANT = frozenset({"HOME", "LANG", "LANGUAGE", "USER", "VIRTUAL_ENV", "COLUMNS", "NO_COLOR"})
_RANDOM = frozenset({"PYTHONHASHSEED"})
"""Variables without which a process has a random value, so that of the server is as good as any."""

_LOCAL = "ansible.plugins.connection.local"
_SHELL = "ansible.plugins.shell.sh"
_EXECUTABLE = "/bin/sh"


@dataclass(frozen=True, slots=True)
class ForkContext:
    """The values that forked processes of one run get from the server and from the process of the run."""

    server_environment: Mapping[str, str]
    """The environment in which the server imported Ansible."""
    titles: ProcessTitles
    add_note: Callable[[str], None]
    """Adds a note on a process that wasn't forked; see ``runner_process.Notes``."""
    note_descriptor: int
    event_descriptor: int
    patches: Collection[str]
    """The names of the patches in use."""
    preparations: Sequence[Callable[[], None]]
    """Install in ansible-playbook what the server has prepared for it; see ``preload``."""
    discovery: RunDiscovery | None = None
    code: CodeInUse | None = None
    """Where the processes of the run report the functions that they use."""

    @property
    def shared_descriptors(self) -> tuple[int, ...]:
        """The descriptors that every forked process of the run keeps."""
        return (self.discovery.descriptor,) if self.discovery else ()


def fork_spawn_class(context: ForkContext) -> type[pexpect.spawn]:
    """Return the class with which ansible-runner starts ansible-playbook, in place of ``pexpect.spawn``."""

    class ForkSpawn(pexpect.spawn):  # type: ignore[misc]
        def __init__(self, command: str, args: list[str], **options: Any) -> None:
            super().__init__(command, args, maxread=_READ_BYTES, **options)

        def _spawnpty(self, args: list[bytes], **options: Any) -> ptyprocess.PtyProcess:
            parsed = _Command([os.fsdecode(arg) for arg in args], **options)
            if reason := _reason_not_to_fork(context, parsed):
                context.add_note(f"ansible-playbook is not forked: {reason}")
                process = super()._spawnpty(args, **options)
            else:
                process = _fork(context, parsed)
            # pexpect sleeps after closing the terminal; the process has ended by then.
            process.delayafterclose = 0
            return process

    return ForkSpawn


class _Command:
    """A command that pexpect starts."""

    def __init__(self, words: list[str], env: Mapping[str, Any], cwd: str, **options: Any) -> None:
        self.program = "ansible.cli.playbook"
        """The module whose ``main`` the child calls."""
        if tuple(words[: len(PROGRAM_COMMAND)]) == PROGRAM_COMMAND:
            self.program, *arguments = words[len(PROGRAM_COMMAND) :]
            words = [_own_program(), *arguments]
        self.words = words
        self.environment = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        self.cwd = cwd
        self.echo = bool(options["echo"])
        self.prepare: Callable[[], None] = options["preexec_fn"]
        self.dimensions = options.get("dimensions", (24, 80))


def _reason_not_to_fork(context: ForkContext, command: _Command) -> str:
    """Return why ansible-playbook can't be forked; an empty string if it can."""
    if command.words[0] != _own_program():
        return f"the program is {command.words[0]}"
    if os.path.exists(f"{command.cwd}/ansible.cfg"):  # noqa: PTH110 - plain text
        return f"there is an ansible.cfg in {command.cwd}"
    playbook_directory = os.path.dirname(os.path.join(command.cwd, command.words[-1]))  # noqa: PTH118, PTH120 - plain text
    if os.path.isdir(f"{playbook_directory}/collections"):  # noqa: PTH112 - plain text
        return f"there are collections next to the playbook in {playbook_directory}"
    one, other = context.server_environment, command.environment
    relevant = {name for name in one.keys() | other.keys() if name in _RELEVANT or name.startswith(_RELEVANT_PREFIXES)}
    different = {name for name in relevant if one.get(name) != other.get(name)} - reset_state.PER_RUN
    names = sorted(different - (_RANDOM - other.keys()))
    return f"these variables differ from the server's: {', '.join(names)}" if names else ""


def _own_program() -> str:
    return os.path.join(os.path.dirname(sys.executable), PROGRAM)  # noqa: PTH118, PTH120 - plain text


def _fork(context: ForkContext, command: _Command) -> ptyprocess.PtyProcess:
    pid, terminal = os.forkpty()
    if pid == 0:
        run_and_exit(lambda: _run_playbook(context, command), context.code)
    process = ptyprocess.PtyProcess(pid, terminal)
    process.setwinsize(*command.dimensions)
    return process


def _run_playbook(context: ForkContext, command: _Command) -> None:
    reset_signals()
    command.prepare()
    ptyprocess.ptyprocess._setwinsize(0, *command.dimensions)  # noqa: SLF001 - as pexpect does in its child
    if not command.echo:
        attributes = termios.tcgetattr(0)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, attributes)
    open_standard_streams()
    close_descriptors_except([context.note_descriptor, context.event_descriptor, *context.shared_descriptors])
    os.chdir(command.cwd)
    set_environment(command.environment)
    context.titles.rename(sys.executable, *command.words)
    sys.argv = list(command.words)
    events = context.event_descriptor if "event-channel" in context.patches else None
    reset_state.reset_for_run(context.server_environment, events)
    if "display-events" in context.patches:
        reset_state.defer_display_events()
    if "config-warnings" in context.patches:
        reset_state.report_config_warnings()
    apply_patches(context)
    import_module(command.program).main(sys.argv)


def apply_patches(context: ForkContext) -> None:
    """Install the patches in use, in the child that becomes ansible-playbook."""
    close_connections = _close_connections_in_children()
    placement = TaskPlacement()
    arguments: dict[str, tuple[object, ...]] = {
        "caller-frames": (),
        "temporary-directories": (),
        "json-kubeconfig": (),
        "forked-modules": (context, placement, close_connections),
        "in-process-tasks": (placement,),
        "trusted-templates": (),
    }
    if context.discovery:
        arguments["known-discovery"] = context.discovery, os.environ.get(PROXY_VARIABLE, "")
    for patch in PATCHES:
        if patch.name in arguments and patch.name in context.patches:
            patch.load().install(*arguments[patch.name])
    for install in context.preparations:
        install()


def _close_connections_in_children() -> Callable[[], None]:
    """Close inherited connections to the API server in each process that is forked from now on.

    Return a function that closes those of a process.

    kubernetes.core keeps its clients for as long as a process lives, with open connections, and a lookup leaves some in
    the process of the play or of a worker. A module that is forked there inherits the client but not the descriptors,
    so that its first request fails unless urllib3 repeats it, which it does only for reads. Workers would share one
    connection. This relies on no private function: every client has its connections in a ``PoolManager`` of urllib3.
    """
    managers: weakref.WeakSet[urllib3.PoolManager] = weakref.WeakSet()

    def init(original: Callable[..., None], manager: urllib3.PoolManager, *args: Any, **options: Any) -> None:
        original(manager, *args, **options)
        managers.add(manager)

    def close_connections() -> None:
        for manager in list(managers):
            manager.clear()  # in this process; another process that has them open keeps them

    wrap(urllib3.PoolManager, "__init__", init)
    os.register_at_fork(after_in_child=close_connections)
    return close_connections


class NeedsWorker(BaseException):
    """Unwinds a task that needs a worker; not an error, so that no handler of Ansible's catches it."""


class ModuleResult(NamedTuple):
    """How the process of a module ended: the exit code as a shell reports it, stdout and stderr."""

    code: int
    out: bytes
    err: bytes


class TaskPlacement:
    """Where the current task of this process runs, and the results of its modules so far."""

    def __init__(self) -> None:
        self.is_in_process = False
        """Whether the task runs in the process of ansible-playbook."""
        self._results: deque[tuple[str, ModuleResult]] = deque()

    @contextmanager
    def in_process(self) -> Iterator[None]:
        """Run a task in the process of ansible-playbook; its results are kept only if it has to restart in a worker."""
        self.is_in_process = True
        try:
            yield
            # The next task may start in a worker and must not find these results.
            self._results.clear()
        finally:
            self.is_in_process = False

    @contextmanager
    def in_worker(self) -> Iterator[None]:
        """Start a worker, which finds the results that the same task has recorded."""
        try:
            yield
        finally:
            self._results.clear()

    def require_worker(self, reason: str) -> None:
        """Return if this is a worker. Raises NeedsWorker if not."""
        if self.is_in_process:
            raise NeedsWorker(reason)

    def record_result(self, module: str, result: ModuleResult) -> None:
        """Record the result of a module, unless this is a worker."""
        if self.is_in_process:
            self._results.append((module, result))

    def recorded_result(self, module: str) -> ModuleResult | None:
        """Return the result of a module that this task has run before it needed a worker; None if there is none."""
        if self.is_in_process or not self._results or self._results[0][0] != module:
            return None
        return self._results.popleft()[1]


def reason_not_local(action: Any) -> str:
    """Return why a task doesn't run on this host, as this user, with /bin/sh; an empty string if it does."""
    connection = action._connection  # noqa: SLF001 - no public way
    executable = action._play_context.executable  # noqa: SLF001 - no public way
    if type(connection).__module__ != _LOCAL:
        return f"its connection is {connection.transport}"
    if connection.become is not None:
        return "it runs as another user"
    if type(connection._shell).__module__ != _SHELL or executable != _EXECUTABLE:  # noqa: SLF001 - no public way
        return f"its shell is {executable}"
    return ""
