"""ansible-playbook as a forked child on a terminal, instead of a new interpreter.

``ForkSpawn`` replaces ``pexpect.spawn`` in the process of one run, so that ansible-runner stays the driver. The state
that ansible-core computed when the server imported it is reset for the run. A run whose environment differs from the
server's in more than the variables that every run has of its own gets a new interpreter.
"""

import os
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pexpect
import ptyprocess

from rolecall.runner.runs.discovery_image import RunDiscovery
from rolecall.runner.runs.planned.playbook import PLANNED_RUNS, without_command
from rolecall.runner.runs.planned.playbook import main as planned_main
from rolecall.runner.warm.ansible_patches import reset_state
from rolecall.runner.warm.ansible_patches.display_hooks import defer_display_events
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.forked_child import (
    ProcessTitles,
    close_descriptors_except,
    open_standard_streams,
    reset_signals,
    run_and_exit,
    set_environment,
)

PROGRAM = "ansible-playbook"
_READ_BYTES = 65536
_RELEVANT_PREFIXES = ("ANSIBLE_", "_ANSIBLE_", "PYTHON", "LC_", "LD_", "AWX_", "ORIGINAL_STDOUT_")
_RELEVANT = frozenset({"HOME", "LANG", "LANGUAGE", "USER", "VIRTUAL_ENV", "COLUMNS", "NO_COLOR"})


@dataclass(frozen=True, slots=True)
class ForkContext:
    """What the forked processes of one run get from the server and from the process of the run."""

    server_environment: Mapping[str, str]
    """The environment in which the server imported Ansible."""
    titles: ProcessTitles
    add_note: Callable[[str], None]
    """Adds a note on what was not forked; see ``runner_process.Notes``."""
    note_descriptor: int
    event_descriptor: int
    apply_patches: Callable[["ForkContext"], None]
    """Patches Ansible in the child that becomes ansible-playbook."""
    patches: Mapping[str, PatchStatus]
    discovery: RunDiscovery | None = None

    def has(self, patch: str) -> bool:
        """Return whether runs use a patch."""
        return self.patches[patch].is_in_use

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
    """The command that pexpect is asked to start."""

    def __init__(self, words: list[str], env: Mapping[str, Any], cwd: str, **options: Any) -> None:
        arguments = without_command(words)
        self.is_planned = arguments is not None
        self.words = words if arguments is None else [_own_program(), *arguments]
        self.environment = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        self.cwd = cwd
        self.echo = bool(options["echo"])
        self.prepare: Callable[[], None] = options["preexec_fn"]
        self.dimensions = options.get("dimensions", (24, 80))


def _reason_not_to_fork(context: ForkContext, command: _Command) -> str:
    """Return why ansible-playbook cannot be forked; an empty string if it can."""
    if command.words[0] != _own_program():
        return f"the program is {command.words[0]}"
    if os.path.exists(f"{command.cwd}/ansible.cfg"):  # noqa: PTH110 - plain text
        return f"there is an ansible.cfg in {command.cwd}"
    playbook_folder = os.path.dirname(os.path.join(command.cwd, command.words[-1]))  # noqa: PTH118, PTH120 - plain text
    if os.path.isdir(f"{playbook_folder}/collections"):  # noqa: PTH112 - plain text
        return f"there are collections beside the playbook in {playbook_folder}"
    names = sorted(_different(context.server_environment, command.environment) - reset_state.PER_RUN)
    return f"these variables differ from the server's: {', '.join(names)}" if names else ""


def _own_program() -> str:
    return os.path.join(os.path.dirname(sys.executable), PROGRAM)  # noqa: PTH118, PTH120 - plain text


def _different(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    names = {name for name in one.keys() | other.keys() if name in _RELEVANT or name.startswith(_RELEVANT_PREFIXES)}
    return {name for name in names if one.get(name) != other.get(name)}


def _fork(context: ForkContext, command: _Command) -> ptyprocess.PtyProcess:
    pid, terminal = os.forkpty()
    if pid == 0:
        run_and_exit(lambda: _run_playbook(context, command))
    process = ptyprocess.PtyProcess(pid, terminal)
    process.setwinsize(*command.dimensions)
    return process


def _run_playbook(context: ForkContext, command: _Command) -> None:
    from ansible.cli import playbook  # noqa: PLC0415 - only the server has Ansible

    reset_signals()
    command.prepare()
    ptyprocess.ptyprocess._setwinsize(0, *command.dimensions)  # noqa: SLF001 - as pexpect does in its child
    if not command.echo:
        _disable_echo()
    open_standard_streams()
    close_descriptors_except([context.note_descriptor, context.event_descriptor, *context.shared_descriptors])
    os.chdir(command.cwd)
    set_environment(command.environment)
    context.titles.rename(sys.executable, *command.words)
    sys.argv = list(command.words)
    reset_state.reset_for_run(
        context.server_environment, context.event_descriptor if context.has("event-channel") else None
    )
    if context.has("display-events"):
        defer_display_events()
    if context.has("config-warnings"):
        reset_state.report_config_warnings()
    context.apply_patches(context)
    if command.is_planned:
        planned_main(sys.argv, context.patches[PLANNED_RUNS])
    else:
        playbook.main(sys.argv)


def _disable_echo() -> None:
    attributes = termios.tcgetattr(0)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, attributes)
