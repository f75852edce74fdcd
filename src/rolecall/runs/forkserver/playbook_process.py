"""ansible-playbook as a forked child on a terminal, in place of a new interpreter.

`ForkSpawn` stands in for `pexpect.spawn` in the process of one play, so that ansible-runner stays the driver. What
ansible-core fixed when the server imported it is set again for the run; a run whose settings differ in more than the
few that every run has of its own is started in the ordinary way.
"""

import os
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pexpect
import ptyprocess

from rolecall.runs.ansible_patches import reset_state
from rolecall.runs.ansible_patches.display_hooks import print_plain_lines_first
from rolecall.runs.forkserver.forked_child import (
    keep_descriptors,
    leave,
    open_standard_streams,
    reset_signals,
    set_environment,
)
from rolecall.runs.forkserver.process_titles import ProcessTitles

PROGRAM = "ansible-playbook"
_READ_BYTES = 65536
_IMPORTANT_PREFIXES = ("ANSIBLE_", "_ANSIBLE_", "PYTHON", "LC_", "LD_", "AWX_", "ORIGINAL_STDOUT_")
_IMPORTANT = frozenset({"HOME", "LANG", "LANGUAGE", "USER", "VIRTUAL_ENV", "COLUMNS", "NO_COLOR"})

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ForkContext:
    """What the server has prepared, its environment, and where names, remarks and events are written."""

    environment: Mapping[str, str]
    titles: ProcessTitles
    note: Note
    note_descriptor: int
    event_descriptor: int
    install_seams: Callable[["ForkContext"], None]


def fork_spawn(context: ForkContext) -> type[pexpect.spawn]:
    """Return the class that ansible-runner shall start ansible-playbook with."""

    class ForkSpawn(pexpect.spawn):  # type: ignore[misc]
        def __init__(self, command: str, args: list[str], **options: Any) -> None:
            super().__init__(command, args, maxread=_READ_BYTES, **options)

        def _spawnpty(self, args: list[bytes], **options: Any) -> ptyprocess.PtyProcess:
            start = _Start([os.fsdecode(arg) for arg in args], **options)
            if reason := _why_not(context, start):
                context.note(f"ansible-playbook is not forked: {reason}")
                process = super()._spawnpty(args, **options)
            else:
                process = _fork(context, start)
            # Without pexpect's pause after closing the terminal: the process has ended by then.
            process.delayafterclose = 0
            return process

    return ForkSpawn


class _Start:
    """What pexpect wants to be started."""

    def __init__(self, words: list[str], env: Mapping[str, Any], cwd: str, **options: Any) -> None:
        self.words = words
        self.environment = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        self.cwd = cwd
        self.echo = bool(options["echo"])
        self.prepare: Callable[[], None] = options["preexec_fn"]
        self.dimensions = options.get("dimensions", (24, 80))


def _why_not(context: ForkContext, start: _Start) -> str:
    """Return why the play cannot be forked; empty text when it can."""
    if start.words[0] != os.path.join(os.path.dirname(sys.executable), PROGRAM):  # noqa: PTH118, PTH120 - plain text
        return f"the program is {start.words[0]}"
    if os.path.exists(f"{start.cwd}/ansible.cfg"):  # noqa: PTH110 - plain text
        return f"there is an ansible.cfg in {start.cwd}"
    playbook_folder = os.path.dirname(os.path.join(start.cwd, start.words[-1]))  # noqa: PTH118, PTH120 - plain text
    if os.path.isdir(f"{playbook_folder}/collections"):  # noqa: PTH112 - plain text
        return f"there are collections beside the playbook in {playbook_folder}"
    names = sorted(_different(context.environment, start.environment) - reset_state.PER_RUN)
    return f"these variables differ from the server's: {', '.join(names)}" if names else ""


def _different(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    names = {name for name in one.keys() | other.keys() if name in _IMPORTANT or name.startswith(_IMPORTANT_PREFIXES)}
    return {name for name in names if one.get(name) != other.get(name)}


def _fork(context: ForkContext, start: _Start) -> ptyprocess.PtyProcess:
    pid, terminal = os.forkpty()
    if pid == 0:
        leave(lambda: _be_the_playbook(context, start))
    process = ptyprocess.PtyProcess(pid, terminal)
    process.setwinsize(*start.dimensions)
    return process


def _be_the_playbook(context: ForkContext, start: _Start) -> None:
    from ansible.cli.playbook import main  # noqa: PLC0415 - only the server has Ansible

    reset_signals()
    start.prepare()
    ptyprocess.ptyprocess._setwinsize(0, *start.dimensions)  # noqa: SLF001 - as pexpect does in its child
    if not start.echo:
        _disable_echo()
    open_standard_streams()
    keep_descriptors([context.note_descriptor, context.event_descriptor])
    os.chdir(start.cwd)
    set_environment(start.environment)
    context.titles.rename(sys.executable, *start.words)
    sys.argv = list(start.words)
    reset_state.reset_for_run(context.environment, context.event_descriptor)
    print_plain_lines_first()
    reset_state.report_config_warnings()
    context.install_seams(context)
    main(sys.argv)


def _disable_echo() -> None:
    attributes = termios.tcgetattr(0)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, attributes)
