"""The process of one run, which drives ansible-runner: ``python -m rolecall.runner.runs.runner_process``.

The first line of stdin is a ``RunnerInput``. Stdin then stays open; when it is closed, the operator has died. Stdout
carries the events as lines of JSON and, last, how the run ended. Whatever ends the run (its last task, SIGTERM, the
operator's death), no process below this one remains when it exits.

The process limits what the run takes. The kernel limits the private memory of each process. The artifacts of a run (the
command, a file for each event, and ``stdout``) are all written by this process: so the files that exist at the first
event, plus the events, are everything, and ``RLIMIT_FSIZE`` stops a single file that grows between two events.

The process keeps secrets out of the files that a run leaves: text that contains one is redacted before it is written,
or when the run ends at the latest.
"""

import json
import os
import resource
import selectors
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from rolecall.kube.json_values import with_texts
from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.events import read_event
from rolecall.runner.secrets.environment import HiddenText, hide_environment, redact_directory, redacted
from rolecall.system.files import write_private
from rolecall.system.imports import without_collections
from rolecall.system.processes import become_subreaper, end_descendants, reap_children

COLLECTIONS = Path(__file__).resolve().parents[2] / "collections"
"""The directory of rolecall's own Ansible collections."""

CALLBACK_PLUGINS = Path(__file__).with_name("callback_plugins")
"""The directory of rolecall's own callback plugins; Ansible loads everything in it."""

PROGRAM_COMMAND = (sys.executable, "-P", "-m")
"""Starts the ``program`` of a run in a new interpreter."""

PARENT_DIED = signal.SIGUSR1
"""The signal that a forked process receives when the fork server dies."""

Adapt = Callable[[Any], None]
"""Changes the ``ansible_runner.Runner`` of a run before it starts."""

_LAST_FILES_SECONDS = 6.0
_NOTE_BYTES, _NOTES_BYTES = 1024, 65536
_RETRY_SECONDS = 0.1

_MAX_TMPDIR_BYTES = 75
"""A socket's path has 107 bytes at most, and multiprocessing needs 32 of them below TMPDIR."""

_PRINTED = "stdout"
_END_OF_LINE = "\r\n"  # a terminal's; ansible-runner writes one after the text of an event, and not into the event


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """The input of the process; ``role`` and ``playbook`` are absolute paths, one of them is empty.

    ``program`` is the module whose ``main``, with the arguments of ansible-playbook, replaces ansible-playbook; empty
    for ansible-playbook itself.
    """

    ident: str
    workspace: str
    temporary: str
    role: str = ""
    playbook: str = ""
    program: str = ""
    verbosity: int = 0
    grace_seconds: float = 5.0
    memory_limit_bytes: int = 0
    artifact_limit_bytes: int = 0
    output_in_events: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_line(self) -> bytes:
        """Return the input as one line of JSON for the process's stdin."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Parse the output of ``to_line``."""
        return cls(**json.loads(line))

    @property
    def artifacts(self) -> Path:
        """The artifact directory of the run."""
        return Path(self.workspace) / "artifacts" / self.ident


def main(
    notes: "Notes | None" = None, adapt: Adapt = lambda _: None, at_exit: Callable[[], None] = lambda: None
) -> None:
    """Run the ``RunnerInput`` from stdin, pass on the notes, and exit when no process of the run remains."""
    output = Output(os.dup(1))
    os.dup2(2, 1)  # everything that this process prints goes to stderr
    wake_up = wake_up_on(signal.SIGTERM, signal.SIGINT, PARENT_DIED)
    become_subreaper()
    run_input = RunnerInput.from_line(sys.stdin.buffer.readline())
    limit_memory(run_input.memory_limit_bytes)
    memory = PeakMemory()
    thread = RunnerThread(run_input, output, adapt)
    thread.start()
    stopped = _wait(thread.finished_descriptor, wake_up)
    survivors = thread.end(run_input.grace_seconds)
    reap_children()
    ending = (stopped or thread.ending) | {"peak_memory_bytes": memory.max_bytes}
    redact_directory(run_input.artifacts, run_input.secrets.values())
    shutil.rmtree(run_input.temporary, ignore_errors=True)
    if run_input.role:
        (Path(run_input.workspace) / "project" / "main.json").unlink(missing_ok=True)
    if found := notes.read() if notes else []:
        output.write(json.dumps({"notes": found}))
    output.write(json.dumps({"ending": ending, "survivors": survivors}))
    at_exit()
    os._exit(0)  # the thread may hang in ansible-runner, and nothing else remains to be done


def wake_up_on(*signals: signal.Signals) -> int:
    """Return a descriptor that receives the number of each of these signals, which have no other effect then."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for each in signals:
        signal.signal(each, lambda _number, _frame: None)
    return reading


def _wait(finished: int, wake_up: int) -> dict[str, Any]:
    """Wait for the end of the run; return how and why it has to be stopped, or nothing if it ended by itself."""
    with selectors.DefaultSelector() as selector:
        for descriptor in (finished, wake_up, 0):
            selector.register(descriptor, selectors.EVENT_READ)
        ready = {key.fd for key, _ in selector.select()}
    if finished in ready:
        return {}
    if wake_up not in ready:
        return {"status": "canceled", "reason": "the operator has died"}
    if PARENT_DIED in os.read(wake_up, _NOTE_BYTES):
        return {"status": "error", "reason": "the fork server of the run has died"}
    return {"status": "canceled", "reason": "the run was asked to end"}


class RunnerThread(threading.Thread):
    """Runs ansible-runner and writes events to ``output``; ``finished_descriptor`` becomes readable at its end."""

    def __init__(self, run_input: RunnerInput, output: "Output", adapt: Adapt) -> None:
        super().__init__(name="ansible-runner", daemon=True)
        self._input = run_input
        self._output = output
        self._adapt = adapt
        self._files = EventFiles(
            run_input.artifacts / "job_events",
            run_input.artifact_limit_bytes,
            output_in_events=run_input.output_in_events,
        )
        self.finished_descriptor, self._finish = os.pipe()
        self._is_stopping = threading.Event()
        self.ending: dict[str, Any] = {}

    def end(self, grace_seconds: float) -> list[int]:
        """End everything below this process, let ansible-runner write its last files, and return ids of survivors.

        ansible-runner may be about to start ansible-playbook: until it has finished, its children are killed.
        """
        if not self.is_alive():
            reap_children()
        survivors = end_descendants(os.getpid(), grace_seconds)
        self._is_stopping.set()
        deadline = time.monotonic() + _LAST_FILES_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            self.join(timeout=_RETRY_SECONDS)
            survivors = end_descendants(os.getpid(), 0)
        return survivors

    def run(self) -> None:
        """Run ansible-runner; an exception that it raises is an ending too."""
        secrets = self._input.secrets

        def on_event(raw: dict[str, Any]) -> bool:
            raw.update(with_texts(raw, lambda text: redacted(text, secrets.values()), with_keys=True))
            self._output.write(read_event(raw).to_json())
            return self._files.store(raw)

        try:
            runner = configure(self._input, event_handler=on_event, cancel_callback=self._is_stopping.is_set)
            self._adapt(runner)
            if self._input.program:
                runner.config.command = [*PROGRAM_COMMAND, self._input.program, *runner.config.command[1:]]
            runner.config.env = hide_environment(runner.config.env)
            runner.config.env |= {name: HiddenText(value) for name, value in secrets.items()}
            status, rc = runner.run()
            self.ending = {"status": status, "rc": rc}
        except ArtifactsTooLargeError as error:
            self.ending = {"status": "error", "reason": str(error), "limit": "disk"}
        except Exception as error:  # noqa: BLE001 - whatever ansible-runner raises must reach the status of the object
            self.ending = {"status": "error", "reason": f"ansible-runner: {type(error).__name__}: {error}"}
        finally:
            os.close(self._finish)


def configure(run_input: RunnerInput, **callbacks: Callable[..., Any]) -> Any:
    """Return the ``ansible_runner.Runner`` of a run, ready to start."""
    # Imported here: an invalid input must not wait for it.
    with without_collections():
        from ansible_runner.interface import init_runner  # noqa: PLC0415

    if run_input.playbook:
        content: dict[str, Any] = {"playbook": run_input.playbook}
    else:
        parent, _, name = run_input.role.rpartition("/")
        skip_facts = os.environ.get("ANSIBLE_GATHERING") == "explicit"
        content = {"role": name, "roles_path": f"{parent}/", "hosts": "localhost", "role_skip_facts": skip_facts}
    programs = Path(sys.executable).parent
    callback_paths = [part for part in (os.environ.get("ANSIBLE_CALLBACK_PLUGINS"), str(CALLBACK_PLUGINS)) if part]
    python_path = [part for part in (os.environ.get("PYTHONPATH"), str(COLLECTIONS)) if part]
    environment = {
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        # Ansible finds collections on Python's path; ANSIBLE_COLLECTIONS_PATH would override the user's ansible.cfg.
        "PYTHONPATH": os.pathsep.join(python_path),
        # ansible-runner adds its own directory.
        "ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join(callback_paths),
        # ansible-runner's default writes facts, and with them the environment, into a file.
        "ANSIBLE_CACHE_PLUGIN": "memory",
        # A run that is killed can't remove its temporary files.
        "ANSIBLE_LOCAL_TEMP": run_input.temporary,
    }
    if len(os.fsencode(run_input.temporary)) <= _MAX_TMPDIR_BYTES:
        environment["TMPDIR"] = run_input.temporary
    return init_runner(
        private_data_dir=run_input.workspace,
        ident=run_input.ident,
        verbosity=max(run_input.verbosity, 0),
        envvars=environment | dict(run_input.environment),
        fact_cache_type="memory",
        quiet=True,
        suppress_env_files=True,
        **callbacks,
        **content,
    )


class Notes:
    """Notes of this process and those below it on what was not forked, for the operator's debug log."""

    def __init__(self) -> None:
        self.reading, self.descriptor = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.descriptor, False)

    def add(self, text: str) -> None:
        """Add a note; it is lost if there are too many."""
        with suppress(BlockingIOError):
            os.write(self.descriptor, text.replace("\n", " ").encode()[:_NOTE_BYTES] + b"\n")

    def read(self) -> list[str]:
        """Return the notes that were added."""
        try:
            return os.read(self.reading, _NOTES_BYTES).decode(errors="replace").splitlines()
        except BlockingIOError:
            return []


class Output:
    """Writes lines to the operator; when the operator no longer reads, lines are dropped."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._is_open = True

    def write(self, line: str) -> None:
        """Write one line."""
        if not self._is_open:
            return
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError:
            self._is_open = False


# The artifacts of the run while it lasts.


class ArtifactsTooLargeError(Exception):
    """The artifacts of a run are larger than its limit."""


class EventFiles:
    """The files of the events of one run, in ``directory``; a limit of 0 means no limit.

    With ``output_in_events`` a file repeats the printed text of its event, and ansible-runner writes it. Otherwise it
    is written here, and its ``start_line`` and ``end_line`` locate the text in ``stdout``.
    """

    def __init__(self, directory: Path, limit_bytes: int, *, output_in_events: bool) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._output_in_events = output_in_events
        self._counted_bytes = 0

    def store(self, event: Mapping[str, Any]) -> bool:
        """Count an event, and write it unless ansible-runner is to write it; return whether it is.

        Raises ArtifactsTooLargeError if the run has stored too much.
        """
        if self._limit_bytes and not self._counted_bytes:
            # Not earlier: ansible-playbook, which has started by now, may write files of any size.
            limit_file_size(self._limit_bytes)
            # In bytes, as the events: the budget for all runs counts blocks, after a run has ended.
            self._counted_bytes = sum(
                path.stat().st_size for path in self._directory.parent.iterdir() if path.is_file()
            )
        stored = event if self._output_in_events else {key: event[key] for key in event if key != _PRINTED}
        text = json.dumps(stored)
        if printed := str(event.get(_PRINTED, "")):
            self._counted_bytes += len(printed.encode(errors="replace")) + len(_END_OF_LINE)
        self._counted_bytes += len(text)
        if self._counted_bytes > self._limit_bytes > 0:
            raise ArtifactsTooLargeError(
                f"the run was stopped, because its artifacts have more than {format_bytes(self._limit_bytes)}: let the "
                "role print and return less, or raise --max-artifacts-size, of which a run may have an eighth"
            )
        if not self._output_in_events:
            write_event(self._directory, event, text)
        return self._output_in_events


def write_event(directory: Path, event: Mapping[str, Any], text: str) -> None:
    """Write the text of an event's file. As in ansible-runner, an event that can't be written doesn't end the run."""
    with suppress(OSError):
        write_private(directory / f"{event['counter']}-{event['uuid']}.json", text)


# The limits that the kernel enforces, each for one process.


def limit_memory(limit_bytes: int) -> None:
    """Limit the private memory of this process and of each that it starts; 0 means no limit.

    ``RLIMIT_DATA`` counts writable memory. ``RLIMIT_AS`` would count address space too, of which programs in Go reserve
    far more than they use.
    """
    if limit_bytes > 0:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def limit_file_size(limit_bytes: int) -> None:
    """Limit the size of each file that this process writes, and of those that it starts from now on.

    Writing more raises OSError, because Python ignores the signal SIGXFSZ.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))


class PeakMemory:
    """The maximum of private memory that a process of a run has had; create it when the run starts.

    A process that was forked from a prepared one shares most of its memory, and so do those that it forks. So its
    resident memory counts only where it has grown since the start.
    """

    def __init__(self) -> None:
        self._resident_bytes, self._data_bytes = _own_memory("VmRSS"), _own_memory("VmData")

    @property
    def max_bytes(self) -> int:
        """The maximum of this process, and of any process below it that has ended."""
        children = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        # Not from getrusage: for this process it counts what the parent had when it started this one.
        return max(0, max(_own_memory("VmHWM"), children) - self._resident_bytes) + self._data_bytes


def _own_memory(name: str) -> int:
    """Return a value of this process's memory in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{name}:")[2].split(maxsplit=1)[0])


if __name__ == "__main__":
    main()
