"""Modules as forked children of ansible-playbook, instead of a shell and a new interpreter.

Four functions of ansible-core are wrapped in the child that runs ansible-playbook: the one that executes a module, the
one that decides on pipelining (a forked module needs no file either), the one that builds the payload, and the one of
the local connection that runs a command. Everything between and after them is Ansible's own. A module that can't be
forked raises ``_NotForkable`` before anything is done and runs in a new interpreter.

The child runs the module with ansible-core's own loader of payloads, on packages that are imported already, in the
working directory and environment that the task requests. All effects of the module on its process stay there. The
parent gets what a shell would give it: exit code, stdout and stderr.
"""

import inspect
import json
import multiprocessing
import multiprocessing.process
import os
import resource
import runpy
import selectors
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ansible import constants
from ansible.executor import module_common
from ansible.module_utils import basic
from ansible.module_utils.common import json as module_json
from ansible.module_utils.common import warnings
from ansible.plugins import action as action_plugins
from ansible.plugins import loader
from ansible.plugins.connection import ConnectionBase
from ansible.utils.display import Display

try:
    from ansible.module_utils import _internal
    from ansible.module_utils._internal import _traceback
    from ansible.module_utils._internal._ansiballz import _loader
except ImportError:  # before 2.19
    _internal = _traceback = _loader = None
try:
    from ansible.module_utils._internal import _secrets
except ImportError:  # before 2.22
    _secrets = None

from rolecall.runner.runs.runner_process import COLLECTIONS
from rolecall.runner.warm.ansible_patches.fingerprints import Fingerprints, file_digest
from rolecall.runner.warm.ansible_patches.reset_state import set_kubeconfig
from rolecall.runner.warm.forked_child import (
    close_descriptors_except,
    reset_signals,
    run_and_exit,
    set_environment,
    set_standard_streams,
)
from rolecall.runner.warm.module_host import ModuleHost
from rolecall.runner.warm.playbook_process import ForkContext, ModuleResult, TaskPlacement, reason_not_local
from rolecall.system.wrapping import wrap

PROFILE = "legacy"
_INTERPRETER_PREFIXES = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_")
_INTERPRETER = frozenset({"LANG", "LANGUAGE", "PATH", "HOME"})
_OWN_COLLECTIONS = ("ansible_collections.rolecall.util.", "ansible_collections.operator_sdk.util.")
_TESTED = {
    module: frozenset(digests) for module, digests in Fingerprints.load().files.items() if ".plugins.modules." in module
}
"""The digests of the files of modules in the tested releases of kubernetes.core."""

_READ_BYTES = 1 << 16
_SILENT_SIGNALS = (signal.SIGINT, signal.SIGPIPE)
_SIGNAL_EXIT_BASE = 128
_MAIN_PROCESS = multiprocessing.current_process()
"""The main process of multiprocessing: the server imports this module before anything is forked."""


class _NotForkable(Exception):  # noqa: N818 - no error
    """The reason why a module runs in a new interpreter."""


@dataclass(frozen=True, slots=True)
class _ModuleCall:
    """A module by its full Python name, its arguments as JSON, and what its process needs."""

    module: str
    name: str
    parameters: str
    directory: str
    """The directory from which the module is imported."""
    environment: Mapping[str, str]
    open_files_limit: int
    may_share: bool
    """Whether it may run in a process with others, see ``module_host``."""


class _Payload(bytes):
    """Stands in for the payload of a module that is forked."""

    call: _ModuleCall


def install(context: ForkContext, placement: TaskPlacement, close_connections: Callable[[], None]) -> None:
    """Fork eligible modules, in this process and its workers.

    ``close_connections`` closes the connections of a process to API servers.
    """
    wrappers = _Wrappers(context, placement, close_connections)
    wrap(action_plugins.ActionBase, "_execute_module", wrappers.execute_module)
    wrap(action_plugins.ActionBase, "_is_pipelining_enabled", wrappers.is_pipelining_enabled)
    wrap(action_plugins, "modify_module", wrappers.modify_module)
    local = loader.connection_loader.get("ansible.builtin.local", class_only=True)
    wrap(local, "exec_command", wrappers.exec_command)


_signature_of = cache(inspect.signature)


class _Wrappers:
    """The four wrappers, which receive the original first; each process works on one task at a time."""

    def __init__(self, context: ForkContext, placement: TaskPlacement, close_connections: Callable[[], None]) -> None:
        self._context = context
        self._placement = placement
        self._close_connections = close_connections
        self._is_trying = False
        self._has_timeout = False
        self._host: ModuleHost | None = None

    def execute_module(self, original: Callable[..., Any], action: Any, *args: Any, **options: Any) -> Any:
        name = "a module"
        try:
            given = _signature_of(original).bind(action, *args, **options).arguments
            name = given.get("module_name") or action._task.action  # noqa: SLF001 - as the original does
            _check_task(action, is_async=bool(given.get("wrap_async")))
            self._has_timeout = bool(action._task.timeout)  # noqa: SLF001 - no public way
            self._is_trying = True
            return original(action, *args, **options)
        except _NotForkable as reason:
            self._placement.require_worker(str(reason))
            self._context.add_note(f"module {name} is not forked: {reason}")
        finally:
            self._is_trying = False
        return original(action, *args, **options)

    def is_pipelining_enabled(self, original: Callable[..., bool], *args: Any, **options: Any) -> bool:
        return self._is_trying or original(*args, **options)

    def modify_module(self, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if not self._is_trying:
            return original(*args, **options)
        may_share = "module-host" in self._context.patches
        return _build(may_share=may_share, **_signature_of(original).bind(*args, **options).arguments)

    def exec_command(
        self, original: Callable[..., Any], connection: Any, cmd: Any, in_data: Any = None, *args: Any, **options: Any
    ) -> Any:
        if not isinstance(in_data, _Payload):
            self._placement.require_worker("it starts a program")
            return original(connection, cmd, in_data, *args, **options)
        ConnectionBase.exec_command(connection, cmd, in_data, *args, **options)
        Display().vvv(f"EXEC module {in_data.call.module} in a forked process")
        return self._run(in_data.call, connection.cwd)

    def _run(self, call: _ModuleCall, cwd: bytes | None) -> ModuleResult:
        """Run a module to its end, unless the task has run it before it was restarted in this worker."""
        if result := self._placement.recorded_result(call.module):
            return result
        directory = self._directory_in_host(call, cwd)
        result = self._run_in_host(call, directory) if directory else self._fork(call, cwd)
        self._placement.record_result(call.module, result)
        return result

    def _directory_in_host(self, call: _ModuleCall, cwd: bytes | None) -> bytes:
        """Return the working directory of a module that may run in a process with others, empty if it may not."""
        if not call.may_share or call.environment or self._has_timeout:
            return b""
        try:
            return cwd or os.getcwdb()  # noqa: PTH109 - bytes, as Ansible's
        except FileNotFoundError:  # it was removed, and only a forked process still has it
            return b""

    def _run_in_host(self, call: _ModuleCall, directory: bytes) -> ModuleResult:
        """Run a module in the host of this process, which it starts if necessary; a worker has its own."""
        host = self._host
        if host is not None and host.parent != os.getpid():
            host.close()
            host = None
        if host is None:
            run = partial(_run_in_place, self._context)
            with Display()._lock:  # noqa: SLF001 - no other thread writes to the display, as for ansible-core's workers
                host = self._host = ModuleHost.start(
                    run,
                    self._close_connections,
                    self._context.shared_descriptors,
                    self._context.code,
                    own_session=self._placement.is_in_process,
                )
        try:
            code, status, out, err, reason = host.run((call, directory, dict(os.environ)))
        except BaseException:
            self._host = None
            host.kill()
            raise
        if reason:
            self._host = None
            self._context.add_note(f"the next module gets a new process, because of module {call.name}: {reason}")
        return _result_of(status, out, err) if code is None else ModuleResult(code, out, err)

    def _fork(self, call: _ModuleCall, cwd: bytes | None) -> ModuleResult:
        out_reading, out_writing = os.pipe()
        err_reading, err_writing = os.pipe()
        with Display()._lock:  # noqa: SLF001 - no other thread writes to the display, as for ansible-core's workers
            pid = os.fork()
        if pid == 0:
            if self._placement.is_in_process:
                os.setsid()  # a worker has its own session already
            run_and_exit(lambda: _run_module(call, self._context, cwd, (out_writing, err_writing)), self._context.code)
        os.close(out_writing)
        os.close(err_writing)
        try:
            out, err = _read_all(out_reading, err_reading)
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(out_reading)
            os.close(err_reading)
        return _result_of(status, out, err)


def _check_task(action: Any, *, is_async: bool) -> None:
    if is_async or action._task.async_val:  # noqa: SLF001 - no public way
        raise _NotForkable("it runs in the background")
    if reason := reason_not_local(action):
        raise _NotForkable(reason)


def _build(  # noqa: PLR0913 - as the original
    *,
    module_name: str,
    module_path: str,
    module_args: dict[str, Any],
    templar: Any,
    task_vars: dict[str, Any],
    environment: dict[str, Any],
    remote_is_local: bool = False,
    may_share: bool = False,
    **_: Any,
) -> Any:
    """Return the replacement of the payload. Raises _NotForkable, and the errors of the interpreter discovery."""
    module, directory = _importable(module_path)
    with open(module_path, "rb") as file:  # noqa: PTH123 - as the original
        source = file.read()
    _check_source(source)
    interpreter, words = module_common._extract_interpreter(source)  # noqa: SLF001 - the original's own rule
    shebang, _ = module_common._get_shebang(  # noqa: SLF001 - the original's own rule
        interpreter or "/usr/bin/python", task_vars, templar, words, remote_is_local=remote_is_local
    )
    _check_interpreter(shebang)
    payload = _Payload(b"#")
    payload.call = _ModuleCall(
        module=module,
        name=module_name.rpartition(".")[2],
        parameters=_encoded(module_args),
        directory=directory,
        environment=_checked_environment(environment),
        open_files_limit=_open_files_limit(task_vars),
        may_share=may_share and _is_known(module, directory, source),
    )
    if not hasattr(module_common, "_BuiltModule"):  # before 2.19
        return payload, "new", shebang
    return module_common._BuiltModule(  # noqa: SLF001 - what the original returns
        b_module_data=payload, module_style="new", shebang=shebang, serialization_profile=PROFILE
    )


def _is_known(module: str, directory: str, source: bytes) -> bool:
    """Return whether a module is one of ours, or exactly as in a tested release of kubernetes.core."""
    if module.startswith(_OWN_COLLECTIONS):
        return os.path.realpath(directory) == os.path.realpath(COLLECTIONS)
    return file_digest(source) in _TESTED.get(module, ())


def _importable(path: str) -> tuple[str, str]:
    """Return the full Python name of a module and the directory from which it is imported."""
    try:
        name = module_common._get_ansible_module_fqn(path)  # noqa: SLF001 - the original's own rule
    except ValueError:
        raise _NotForkable("it belongs to a role or a playbook") from None
    directory = path.removesuffix(".py").removesuffix(name.replace(".", "/"))
    if name.partition(".")[0] == "ansible":
        own = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["ansible"].__file__ or "")))  # noqa: PTH100, PTH120
        if os.path.abspath(directory) != own:  # noqa: PTH100 - plain text
            raise _NotForkable(f"{path} is not part of the ansible-core in use")
    *others, own = [path for path in loader.module_utils_loader._get_paths(subdirs=False)]  # noqa: SLF001, C416
    names = {name.removesuffix(".py") for other in others if os.path.isdir(other) for name in os.listdir(other)}  # noqa: PTH112, PTH208
    replaced = names & {name.removesuffix(".py") for name in os.listdir(own)} - {"__init__", "__pycache__"}  # noqa: PTH208
    if replaced:
        raise _NotForkable(f"module_utils are replaced: {', '.join(sorted(replaced))}")
    return name, directory


def _check_source(source: bytes) -> None:
    is_new_style = module_common.NEW_STYLE_PYTHON_MODULE_RE.search(source)
    if not is_new_style or module_common.REPLACER in source or module_common._is_binary(source):  # noqa: SLF001
        raise _NotForkable("it is not a new-style Python module")
    if b"respawn" in source:
        raise _NotForkable("it may change its interpreter")
    name = "_MODULE_METADATA"  # not every ansible-core has this setting
    if constants.config.get_configuration_definition(name) and constants.config.get_config_value(name):
        raise _NotForkable("modules have metadata")


def _check_interpreter(shebang: str) -> None:
    interpreter = shebang.removeprefix("#!")
    own = os.path.dirname(sys.executable)  # noqa: PTH120 - plain text
    is_same = os.path.dirname(interpreter) == own and os.path.realpath(interpreter) == os.path.realpath(sys.executable)  # noqa: PTH120
    if not is_same:
        raise _NotForkable(f"its interpreter is {interpreter}")


def _checked_environment(environment: Mapping[str, Any]) -> dict[str, str]:
    for name in environment:
        if name in _INTERPRETER or name.startswith(_INTERPRETER_PREFIXES):
            raise _NotForkable(f"its environment sets {name}")
    return {str(name): str(value) for name, value in environment.items()}


def _encoded(module_args: dict[str, Any]) -> str:
    options: dict[str, Any]
    if hasattr(module_json, "get_module_encoder"):
        options = {"cls": module_json.get_module_encoder(PROFILE, module_json.Direction.CONTROLLER_TO_MODULE)}
    else:  # before 2.19
        options = {"cls": module_json.AnsibleJSONEncoder, "vault_to_text": True}
    try:
        return json.dumps({"ANSIBLE_MODULE_ARGS": module_args}, **options)
    except TypeError:
        raise _NotForkable("its arguments cannot be encoded as JSON") from None


def _open_files_limit(task_vars: Mapping[str, Any]) -> int:
    limit = constants.config.get_config_value("PYTHON_MODULE_RLIMIT_NOFILE", variables=task_vars)
    if not isinstance(limit, int):
        raise _NotForkable("its limit of open files is a template")
    return limit


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


def _run_module(call: _ModuleCall, context: ForkContext, cwd: bytes | None, writing: tuple[int, int]) -> None:
    """Run a module in this process, as ansible-core does in the process that it starts for a module."""
    reset_signals()
    set_standard_streams(os.open(os.devnull, os.O_RDONLY), *writing)
    close_descriptors_except(context.shared_descriptors)
    _run_in_place(context, (call, cwd, os.environ))


def _run_in_place(context: ForkContext, given: tuple[_ModuleCall, bytes | None, Mapping[str, str]]) -> None:
    """Run a module in a directory, with an environment to which the task adds its own, in a prepared process."""
    call, cwd, environment = given
    if cwd is not None:
        os.chdir(cwd)
    set_environment({**environment, **call.environment})
    set_kubeconfig()
    context.titles.rename(sys.executable, f"AnsiballZ_{call.name}.py")
    sys.argv = [f"AnsiballZ_{call.name}.py"]
    # Since 2.22, a module masks the secrets that are among its arguments, and returns new ones; it knows no others.
    options = {"secrets": _secrets._secret_masker.secrets_in_json(call.parameters)} if _secrets else {}  # noqa: SLF001
    _reset_controller_state()
    if call.open_files_limit:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if min(hard, call.open_files_limit) != soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, call.open_files_limit), hard))
    if hasattr(basic, "_ANSIBLE_PROFILE"):
        _loader.run_module(
            json_params=call.parameters.encode(),
            profile=PROFILE,
            module_fqn=call.module,
            modlib_path=call.directory,
            extensions={},
            **options,
        )
        return
    # Before 2.19 this code is a template, from which ansible-core writes a program.
    basic._ANSIBLE_ARGS = call.parameters.encode()  # noqa: SLF001 - the only way
    names = {"_module_fqn": call.module, "_modlib_path": call.directory}
    runpy.run_module(call.module, init_globals=names, run_name="__main__", alter_sys=True)
    print('{"msg": "New-style module did not handle its own exit", "failed": true}')  # noqa: T201 - its result
    sys.exit(1)


def _reset_controller_state() -> None:
    """Reset the state by which module code would conclude that it runs in the controller, or in a worker."""
    if hasattr(basic, "_ANSIBLE_PROFILE"):  # module code before 2.19 doesn't check where it runs
        _internal.is_controller = False
        _internal.get_controller_serialize_map = dict
        _internal.import_controller_module = lambda _name: None
        _traceback._is_traceback_enabled = _traceback._is_module_traceback_enabled  # noqa: SLF001 - as in a module
        _traceback._module_tracebacks_enabled_events = None  # noqa: SLF001 - as above
        basic._PARSED_MODULE_ARGS = None  # noqa: SLF001 - as above
    if _secrets:
        _secrets._secret_masker.__init__()  # noqa: SLF001 - in place, because modules have imported it
    warnings._global_warnings.clear()  # noqa: SLF001 - as above
    warnings._global_deprecations.clear()  # noqa: SLF001 - as above
    multiprocessing.process._current_process = _MAIN_PROCESS  # type: ignore[attr-defined] # noqa: SLF001
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined] # noqa: SLF001
    multiprocessing.process._children = set()  # type: ignore[attr-defined] # noqa: SLF001
