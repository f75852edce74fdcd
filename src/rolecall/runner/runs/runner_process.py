"""The process of one run, which drives ansible-runner: ``python -m rolecall.runner.runs.runner_process``.

The first line of stdin is a ``RunnerInput``. Stdin then stays open; when it is closed, the operator has died. Stdout
carries the events as lines of JSON and, last, how the run ended. Whatever ends the run (its last task, SIGTERM, the
operator's death), no process below this one is left when it exits.

The artifacts of one run while it lasts: what is stored of an event, and how much the run may store.

The process of a run writes all its artifacts: the command, a file for each event, and ``stdout``, with what is printed
for each event. So what is there at the first event, and then the events, are everything; a single file that grows
between two of them meets ``RLIMIT_FSIZE``.

Keeps secrets out of the files that a run leaves.

ansible-runner writes the whole environment of a play into a file, and a role may print its environment. So the secrets
of a run are passed as ``HiddenText``, which ``execve`` sees in the clear and JSON does not. Text that contains a secret
all the same is redacted before it is written, or when the run ends at the latest.
"""

import json
import os
import selectors
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.events import read_event
from rolecall.runner.runs.planned.playbook import command_of, is_planned
from rolecall.runner.runs.resource_limits import PeakMemory, limit_file_size, limit_memory
from rolecall.runner.runs.workspace import TEMPORARY
from rolecall.system.processes import become_subreaper, end_descendants, reap_children

_PRINTED = "stdout"
_END_OF_LINE = "\r\n"  # a terminal's; ansible-runner writes one after the text of an event, and not into the event


class ArtifactsTooLargeError(Exception):
    """The artifacts of a run are larger than it may have."""


class EventFiles:
    """The files of the events of one run, in ``folder``; with a limit of 0 nothing is limited.

    With ``output_in_events`` a file repeats what is printed for its event, and ansible-runner writes it. Otherwise it
    is written here, and its ``start_line`` and ``end_line`` say where the text is in ``stdout``.
    """

    def __init__(self, folder: Path, limit_bytes: int, *, output_in_events: bool) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._output_in_events = output_in_events
        self._counted_bytes = 0

    def store(self, event: Mapping[str, Any]) -> bool:
        """Take note of an event; return whether ansible-runner is to write it.

        Raises ArtifactsTooLargeError if the run has stored too much.
        """
        if self._limit_bytes and not self._counted_bytes:
            # Not earlier: ansible-playbook, which has started by now, may write files of any size.
            limit_file_size(self._limit_bytes)
            self._counted_bytes = _size_of_files(self._folder.parent)
        stored = event if self._output_in_events else {key: event[key] for key in event if key != _PRINTED}
        text = json.dumps(stored)
        self._counted_bytes += len(text) + _printed_bytes(event)
        if self._counted_bytes > self._limit_bytes > 0:
            raise ArtifactsTooLargeError(
                f"the run was ended, because its artifacts have more than {format_bytes(self._limit_bytes)}: let the "
                "role print and return less, or raise --max-artifacts-size, of which a run may have an eighth"
            )
        if not self._output_in_events:
            with suppress(OSError):  # as in ansible-runner: an event that cannot be written does not end the run
                self._write(f"{event['counter']}-{event['uuid']}.json", text)
        return self._output_in_events

    def _write(self, name: str, text: str) -> None:
        """Write a file that only this user may read, and give it its name when it is complete."""
        path = self._folder / name
        partial = path.with_name(f"{name}.tmp")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        partial.replace(path)


def _printed_bytes(event: Mapping[str, Any]) -> int:
    printed = str(event.get(_PRINTED, ""))
    return len(printed.encode(errors="replace")) + len(_END_OF_LINE) if printed else 0


def _size_of_files(folder: Path) -> int:
    # In bytes, as the events: ``size_on_disk`` of the budget counts blocks, once a run is over.
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


_SHOWN_PREFIXES = ("ANSIBLE_", "AWX_", "RUNNER_", "ROLECALL_", "LC_")
_SHOWN = frozenset({"PATH", "HOME", "LANG", "USER", "TMPDIR", "PYTHONPATH", "KUBECONFIG", "K8S_AUTH_KUBECONFIG"})
_REPLACEMENT = "(hidden)"


class HiddenText(list[str], os.PathLike[str]):
    """The value of an environment variable: ``execve`` takes its text, JSON shows the list ``["hidden"]``."""

    def __init__(self, text: str) -> None:
        super().__init__(["hidden"])
        self._text = text

    def __fspath__(self) -> str:
        """Return the text; there is no other way to it."""
        return self._text


def hide_environment(environment: Mapping[str, str]) -> dict[str, str | HiddenText]:
    """Hide every variable that is not known to be harmless, because an operator's environment may hold passwords."""
    return {
        name: value if name in _SHOWN or name.startswith(_SHOWN_PREFIXES) else HiddenText(value)
        for name, value in environment.items()
    }


def redact(value: Any, secrets: Iterable[str]) -> Any:
    """Replace secrets in every string of a JSON value. Dictionaries and lists are changed in place and returned."""
    secrets = [secret for secret in secrets if secret]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _REPLACEMENT)
    elif isinstance(value, dict):
        for key in value:
            value[key] = redact(value[key], secrets)
    elif isinstance(value, list):
        value[:] = [redact(item, secrets) for item in value]
    return value


def redact_folder(folder: Path, secrets: Iterable[str]) -> None:
    """Replace secrets in the output of a run, and remove the half-written events that a killed run leaves."""
    for partial in folder.glob("job_events/*-partial.json*"):
        partial.unlink(missing_ok=True)
    wanted = [secret.encode() for secret in secrets if secret]
    for name in ("stdout", "stderr"):
        path = folder / name
        content = path.read_bytes() if path.exists() else b""
        clean = content
        for secret in wanted:
            clean = clean.replace(secret, _REPLACEMENT.encode())
        if clean != content:
            path.write_bytes(clean)


COLLECTIONS = Path(__file__).resolve().parents[2] / "collections"
"""The directory of rolecall's own Ansible collections."""

CALLBACK_PLUGINS = Path(__file__).with_name("callback_plugins")
"""The directory of rolecall's own callback plugins; Ansible loads whatever lies there."""

PARENT_DIED = signal.SIGUSR1
"""The signal that a forked process gets when the fork server dies."""

Adapt = Callable[[Any], None]
"""Changes the ``ansible_runner.Runner`` of a run before it starts."""

_LAST_FILES_SECONDS = 6.0
_NOTE_BYTES, _NOTES_BYTES = 1024, 65536
_LOOK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """What the process has to run; ``role`` and ``playbook`` are absolute paths, one of them is empty."""

    ident: str
    workspace: str
    role: str = ""
    playbook: str = ""
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
        """Read what ``to_line`` wrote."""
        return cls(**json.loads(line))

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``ansible_runner`` that name the role or playbook."""
        if self.playbook:
            return {"playbook": self.playbook}
        parent, _, name = self.role.rpartition("/")
        skip_facts = os.environ.get("ANSIBLE_GATHERING") == "explicit"
        return {"role": name, "roles_path": f"{parent}/", "hosts": "localhost", "role_skip_facts": skip_facts}


class RunnerThread(threading.Thread):
    """Runs ansible-runner and writes events to ``output``; ``finished_descriptor`` becomes readable at its end."""

    def __init__(self, run_input: RunnerInput, output: "Output", adapt: Adapt) -> None:
        super().__init__(name="ansible-runner", daemon=True)
        self._input = run_input
        self._output = output
        self._adapt = adapt
        self._files = _event_files(run_input)
        self.finished_descriptor, self._finish = os.pipe()
        self._is_stopping = threading.Event()
        self.ending: dict[str, Any] = {}

    def end(self, grace_seconds: float) -> list[int]:
        """End everything below this process and let ansible-runner write its last files; return ids that survived.

        ansible-runner may be about to start ansible-playbook: until it has finished, what it starts is killed at once.
        """
        if not self.is_alive():
            reap_children()
        survivors = end_descendants(os.getpid(), grace_seconds)
        self._is_stopping.set()
        deadline = time.monotonic() + _LAST_FILES_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            self.join(timeout=_LOOK_AGAIN_SECONDS)
            survivors = end_descendants(os.getpid(), 0)
        return survivors

    def run(self) -> None:
        """Run ansible-runner; an exception that it raises is an ending too."""
        try:
            self.ending = self._run()
        except ArtifactsTooLargeError as error:
            self.ending = {"status": "error", "reason": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever ansible-runner raises must reach the status of the object
            self.ending = {"status": "error", "reason": f"ansible-runner: {type(error).__name__}: {error}"}
        finally:
            os.close(self._finish)

    def _run(self) -> dict[str, Any]:
        runner = configure(self._input, event_handler=self._on_event, cancel_callback=self._is_stopping.is_set)
        self._adapt(runner)
        if is_planned(self._input.environment):
            runner.config.command = command_of(runner.config.command)
        runner.config.env = hide_environment(runner.config.env)
        runner.config.env |= {name: HiddenText(value) for name, value in self._input.secrets.items()}
        status, rc = runner.run()
        return {"status": status, "rc": rc}

    def _on_event(self, raw: dict[str, Any]) -> bool:
        redact(raw, self._input.secrets.values())
        self._output.write(read_event(raw).to_json())
        return self._files.store(raw)


def _event_files(run_input: RunnerInput) -> EventFiles:
    folder = Path(run_input.workspace) / "artifacts" / run_input.ident / "job_events"
    return EventFiles(folder, run_input.artifact_limit_bytes, output_in_events=run_input.output_in_events)


def configure(run_input: RunnerInput, **callbacks: Callable[..., Any]) -> Any:
    """Return the ``ansible_runner.Runner`` of a run, ready to start."""
    # Imported here: an input that cannot be read must not wait for it.
    from ansible_runner.interface import init_runner  # noqa: PLC0415

    return init_runner(
        private_data_dir=run_input.workspace,
        ident=run_input.ident,
        verbosity=max(run_input.verbosity, 0),
        envvars=_environment(run_input) | dict(run_input.environment),
        fact_cache_type="memory",
        quiet=True,
        suppress_env_files=True,
        **callbacks,
        **run_input.arguments,
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
    """Writes lines to the operator through stdout; when nobody reads any more, lines are dropped."""

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


def main(notes: Notes | None = None, adapt: Adapt = lambda _: None) -> None:
    """Run the ``RunnerInput`` from stdin, pass on the notes, and exit when no process of the run is left."""
    output = Output(_take_standard_output())
    wake_up = _wake_up_on_signals()
    become_subreaper()
    run_input = RunnerInput.from_line(sys.stdin.buffer.readline())
    limit_memory(run_input.memory_limit_bytes)
    memory = PeakMemory()
    thread = RunnerThread(run_input, output, adapt)
    thread.start()
    stopped = _wait(thread.finished_descriptor, wake_up)
    survivors = thread.end(run_input.grace_seconds)
    reap_children()
    ending = (stopped or thread.ending) | {"peak_memory_bytes": memory.most_bytes}
    _clean_up(run_input)
    if found := notes.read() if notes else []:
        output.write(json.dumps({"notes": found}))
    output.write(json.dumps({"ending": ending, "survivors": survivors}))
    os._exit(0)  # the thread may hang in ansible-runner, and nothing else is left to do


def _take_standard_output() -> int:
    """Return a descriptor of stdout, and redirect whatever this process prints to stderr."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor


def _wake_up_on_signals() -> int:
    """Return a descriptor from which the number of a signal that ends this process can be read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, PARENT_DIED):
        signal.signal(number, lambda _number, _frame: None)
    return reading


def _wait(finished: int, wake_up: int) -> dict[str, Any]:
    """Wait for the end of the run; return how and why it has to be ended, or nothing if it ended by itself."""
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


def _environment(run_input: RunnerInput) -> dict[str, str]:
    """Return what the environment of the run needs beyond this process's own."""
    programs = Path(sys.executable).parent
    callbacks = [part for part in (os.environ.get("ANSIBLE_CALLBACK_PLUGINS"), str(CALLBACK_PLUGINS)) if part]
    python_path = [part for part in (os.environ.get("PYTHONPATH"), str(COLLECTIONS)) if part]
    return {
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        # Ansible finds collections on Python's path; ANSIBLE_COLLECTIONS_PATH would override the user's ansible.cfg.
        "PYTHONPATH": os.pathsep.join(python_path),
        # ansible-runner adds its own directory.
        "ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join(callbacks),
        # ansible-runner's default writes facts, and with them the environment, into a file.
        "ANSIBLE_CACHE_PLUGIN": "memory",
        # A run that is killed cannot remove its temporary files.
        "ANSIBLE_LOCAL_TEMP": f"{run_input.workspace}/{TEMPORARY}",
    }


def _clean_up(run_input: RunnerInput) -> None:
    workspace = Path(run_input.workspace)
    redact_folder(workspace / "artifacts" / run_input.ident, run_input.secrets.values())
    shutil.rmtree(workspace / TEMPORARY, ignore_errors=True)
    if run_input.role:
        (workspace / "project" / "main.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
