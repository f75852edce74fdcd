"""A module as a forked child, instead of a shell and a new interpreter.

The child runs the module with ansible-core's own loader of payloads, on packages that are imported already, in the
working directory and environment that the task asks for. Whatever the module does to its process stays there. The
parent gets what a shell would give it: exit code, stdout and stderr.
"""

import multiprocessing
import multiprocessing.process
import os
import resource
import runpy
import selectors
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rolecall.runner.warm.ansible_patches.reset_state import set_kubeconfig
from rolecall.runner.warm.ansible_patches.task_placement import ModuleResult
from rolecall.runner.warm.forked_child import (
    ProcessTitles,
    close_descriptors_except,
    reset_signals,
    run_and_exit,
    set_environment,
    set_standard_streams,
)

_READ_BYTES = 1 << 16
_SILENT_SIGNALS = (signal.SIGINT, signal.SIGPIPE)
_SIGNAL_EXIT_BASE = 128
_MAIN_PROCESS = multiprocessing.current_process()
"""The main process of multiprocessing: the server imports this module before anything is forked."""


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A module by its full Python name, its arguments as JSON, and what its process needs."""

    module: str
    name: str
    parameters: str
    profile: str
    folder: str
    environment: Mapping[str, str]
    open_files_limit: int = 0


@dataclass(frozen=True, slots=True)
class ModuleSurroundings:
    """Where a module runs: directory, titles, and the descriptors that it keeps.

    With ``own_session`` it runs in a session of its own, which a worker has already.
    """

    cwd: bytes | None
    titles: ProcessTitles
    descriptors: Sequence[int]
    own_session: bool


def run_module(call: ModuleCall, surroundings: ModuleSurroundings) -> ModuleResult:
    """Run the module to its end."""
    out_reading, out_writing = os.pipe()
    err_reading, err_writing = os.pipe()
    pid = _fork()
    if pid == 0:
        if surroundings.own_session:
            os.setsid()
        run_and_exit(lambda: _run_module_here(call, surroundings, (out_writing, err_writing)))
    os.close(out_writing)
    os.close(err_writing)
    try:
        out, err = _read_all(out_reading, err_reading)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(out_reading)
        os.close(err_reading)
    return _result_of(status, out, err)


def _fork() -> int:
    """Fork while no other thread writes to the display, as ansible-core does for its workers."""
    from ansible.utils.display import Display  # noqa: PLC0415 - only the server has Ansible

    with Display()._lock:  # noqa: SLF001 - no public way
        return os.fork()


def _read_all(*descriptors: int) -> list[bytes]:
    found: dict[int, list[bytes]] = {descriptor: [] for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                if chunk := os.read(key.fd, _READ_BYTES):
                    found[key.fd].append(chunk)
                else:
                    selector.unregister(key.fd)
    return [b"".join(chunks) for chunks in found.values()]


def _result_of(status: int, out: bytes, err: bytes) -> ModuleResult:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return ModuleResult(code, out, err)
    number = -code
    if number not in _SILENT_SIGNALS:
        dumped = " (core dumped)" if os.WCOREDUMP(status) else ""
        err += f"{signal.strsignal(number)}{dumped}\n".encode()
    return ModuleResult(_SIGNAL_EXIT_BASE + number, out, err)


def _run_module_here(call: ModuleCall, surroundings: ModuleSurroundings, writing: tuple[int, int]) -> None:
    reset_signals()
    set_standard_streams(os.open(os.devnull, os.O_RDONLY), *writing)
    close_descriptors_except(surroundings.descriptors)
    if surroundings.cwd is not None:
        os.chdir(surroundings.cwd)
    set_environment({**os.environ, **call.environment})
    set_kubeconfig()
    surroundings.titles.rename(sys.executable, f"AnsiballZ_{call.name}.py")
    sys.argv = [f"AnsiballZ_{call.name}.py"]
    _reset_controller_state()
    _limit_open_files(call.open_files_limit)
    _run_main(call)


def _run_main(call: ModuleCall) -> None:
    """Run the module as ``__main__``, as ansible-core does in the process that it starts for a module."""
    from ansible.module_utils import basic  # noqa: PLC0415 - only the server has Ansible

    if hasattr(basic, "_ANSIBLE_PROFILE"):
        from ansible.module_utils._internal._ansiballz import _loader  # noqa: PLC0415 - as above

        _loader.run_module(
            json_params=call.parameters.encode(),
            profile=call.profile,
            module_fqn=call.module,
            modlib_path=call.folder,
            extensions={},
        )
        return
    # Before 2.19 this code is a template, from which ansible-core writes a program.
    basic._ANSIBLE_ARGS = call.parameters.encode()  # noqa: SLF001 - the only way
    names = {"_module_fqn": call.module, "_modlib_path": call.folder}
    runpy.run_module(call.module, init_globals=names, run_name="__main__", alter_sys=True)
    print('{"msg": "New-style module did not handle its own exit", "failed": true}')  # noqa: T201 - its result
    sys.exit(1)


def _reset_controller_state() -> None:
    """Reset the state by which module code would think that it runs in the controller, or in a worker."""
    from ansible.module_utils import basic  # noqa: PLC0415 - only the server has Ansible
    from ansible.module_utils.common import warnings  # noqa: PLC0415 - as above

    if hasattr(basic, "_ANSIBLE_PROFILE"):  # module code before 2.19 does not ask where it runs
        _reset_internal_state()
    warnings._global_warnings.clear()  # noqa: SLF001 - as above
    warnings._global_deprecations.clear()  # noqa: SLF001 - as above
    multiprocessing.process._current_process = _MAIN_PROCESS  # type: ignore[attr-defined] # noqa: SLF001
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined] # noqa: SLF001
    multiprocessing.process._children = set()  # type: ignore[attr-defined] # noqa: SLF001


def _reset_internal_state() -> None:
    from ansible.module_utils import _internal, basic  # noqa: PLC0415 - only the server has Ansible
    from ansible.module_utils._internal import _traceback  # noqa: PLC0415 - as above

    _internal.is_controller = False
    _internal.get_controller_serialize_map = dict
    _internal.import_controller_module = lambda _name: None
    _traceback._is_traceback_enabled = _traceback._is_module_traceback_enabled  # noqa: SLF001 - the value in a module
    _traceback._module_tracebacks_enabled_events = None  # noqa: SLF001 - as above
    basic._PARSED_MODULE_ARGS = None  # noqa: SLF001 - as above


def _limit_open_files(limit: int) -> None:
    if limit:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if min(hard, limit) != soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, limit), hard))
