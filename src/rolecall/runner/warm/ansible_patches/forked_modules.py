"""Which modules are forked, and the patch that forks them.

Four functions of ansible-core are wrapped in the child that runs ansible-playbook: the one that executes a module, the
one that decides on pipelining (a forked module needs no file either), the one that builds the payload, and the one of
the local connection that runs a command. Everything between and after them is Ansible's own. A module that cannot be
forked raises ``_NotForkable`` before anything is done and runs in a new interpreter.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ansible import constants
from ansible.executor import module_common
from ansible.module_utils.common import json as module_json
from ansible.plugins import action as action_plugins
from ansible.plugins import loader
from ansible.plugins.connection import ConnectionBase
from ansible.utils.display import Display

from rolecall.runner.warm.ansible_patches.module_process import ModuleCall, ModuleSurroundings, run_module
from rolecall.runner.warm.ansible_patches.task_placement import ModuleResult, TaskPlacement, reason_not_local
from rolecall.runner.warm.playbook_process import ForkContext

PROFILE = "legacy"
_INTERPRETER_PREFIXES = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_")
_INTERPRETER = frozenset({"LANG", "LANGUAGE", "PATH", "HOME"})


class _NotForkable(Exception):  # noqa: N818 - no error
    """Says why a module runs in a new interpreter."""


class _Payload(bytes):
    """Stands in for the payload of a module that is forked."""

    call: ModuleCall


def install(context: ForkContext, placement: TaskPlacement) -> None:
    """Fork eligible modules from now on, in this process and its workers."""
    wrappers = _Wrappers(context, placement)
    base = action_plugins.ActionBase
    base._execute_module = wrappers.around_execute(base._execute_module)  # noqa: SLF001 - the patch
    base._is_pipelining_enabled = wrappers.around_pipelining(base._is_pipelining_enabled)  # noqa: SLF001 - the patch
    action_plugins.modify_module = wrappers.around_build(action_plugins.modify_module)
    local = loader.connection_loader.get("ansible.builtin.local", class_only=True)
    local.exec_command = wrappers.around_command(local.exec_command)


class _Wrappers:
    """The four wrappers; each process works on one task at a time."""

    def __init__(self, context: ForkContext, placement: TaskPlacement) -> None:
        self._context = context
        self._placement = placement
        self._is_trying = False

    def around_execute(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def execute(action: Any, *args: Any, **options: Any) -> Any:
            name = "a module"
            try:
                given = signature.bind(action, *args, **options).arguments
                name = given.get("module_name") or action._task.action  # noqa: SLF001 - as the original does
                _check_task(action, is_async=bool(given.get("wrap_async")))
                self._is_trying = True
                return original(action, *args, **options)
            except _NotForkable as reason:
                self._placement.require_worker(str(reason))
                self._context.add_note(f"module {name} is not forked: {reason}")
            finally:
                self._is_trying = False
            return original(action, *args, **options)

        return execute

    def around_pipelining(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def is_enabled(action: Any, module_style: str, wrap_async: bool = False) -> bool:  # noqa: FBT001, FBT002
            return self._is_trying or original(action, module_style, wrap_async)

        return is_enabled

    def around_build(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def build(*args: Any, **options: Any) -> Any:
            if not self._is_trying:
                return original(*args, **options)
            return _build(**signature.bind(*args, **options).arguments)

        return build

    def around_command(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(connection: Any, cmd: Any, in_data: Any = None, sudoable: bool = True) -> Any:  # noqa: FBT001, FBT002
            if not isinstance(in_data, _Payload):
                self._placement.require_worker("it starts a program")
                return original(connection, cmd, in_data=in_data, sudoable=sudoable)
            ConnectionBase.exec_command(connection, cmd, in_data=in_data, sudoable=sudoable)
            Display().vvv(f"EXEC module {in_data.call.module} in a forked process")
            return self._run(in_data.call, connection.cwd)

        return execute

    def _run(self, call: ModuleCall, cwd: bytes | None) -> ModuleResult:
        if result := self._placement.recorded_result(call.module):
            return result
        surroundings = ModuleSurroundings(
            cwd, self._context.titles, self._context.shared_descriptors, own_session=self._placement.is_in_process
        )
        result = run_module(call, surroundings)
        self._placement.record_result(call.module, result)
        return result


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
    **_: Any,
) -> Any:
    """Return what stands in for the payload. Raises _NotForkable, and what the search for an interpreter raises."""
    module, folder = _importable(module_path)
    with open(module_path, "rb") as file:  # noqa: PTH123 - as the original
        source = file.read()
    _check_source(source)
    interpreter, words = module_common._extract_interpreter(source)  # noqa: SLF001 - the original's own rule
    shebang, _ = module_common._get_shebang(  # noqa: SLF001 - the original's own rule
        interpreter or "/usr/bin/python", task_vars, templar, words, remote_is_local=remote_is_local
    )
    _check_interpreter(shebang)
    payload = _Payload(b"#")
    payload.call = ModuleCall(
        module=module,
        name=module_name.rpartition(".")[2],
        parameters=_encoded(module_args),
        profile=PROFILE,
        folder=folder,
        environment=_checked_environment(environment),
        open_files_limit=_open_files_limit(task_vars),
    )
    if not hasattr(module_common, "_BuiltModule"):  # before 2.19
        return payload, "new", shebang
    return module_common._BuiltModule(  # noqa: SLF001 - what the original returns
        b_module_data=payload, module_style="new", shebang=shebang, serialization_profile=PROFILE
    )


def _importable(path: str) -> tuple[str, str]:
    """Return the full Python name of a module and the directory from which it is imported."""
    try:
        name = module_common._get_ansible_module_fqn(path)  # noqa: SLF001 - the original's own rule
    except ValueError:
        raise _NotForkable("it belongs to a role or a playbook") from None
    folder = path.removesuffix(".py").removesuffix(name.replace(".", "/"))
    root = name.partition(".")[0]
    if root == "ansible":
        own = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["ansible"].__file__ or "")))  # noqa: PTH100, PTH120
        if os.path.abspath(folder) != own:  # noqa: PTH100 - plain text
            raise _NotForkable(f"{path} is not part of the ansible-core in use")
    if shadowed := _shadowed_utilities():
        raise _NotForkable(f"module_utils are replaced: {', '.join(shadowed)}")
    return name, folder


def _shadowed_utilities() -> list[str]:
    """Return the files in additional module_utils directories that replace ansible-core's own."""
    *others, own = [path for path in loader.module_utils_loader._get_paths(subdirs=False)]  # noqa: SLF001, C416
    names = {name.removesuffix(".py") for folder in others if os.path.isdir(folder) for name in os.listdir(folder)}  # noqa: PTH112, PTH208
    return sorted(names & {name.removesuffix(".py") for name in os.listdir(own)} - {"__init__", "__pycache__"})  # noqa: PTH208


def _check_source(source: bytes) -> None:
    is_new_style = module_common.NEW_STYLE_PYTHON_MODULE_RE.search(source)
    if not is_new_style or module_common.REPLACER in source or module_common._is_binary(source):  # noqa: SLF001
        raise _NotForkable("it is not a new-style Python module")
    if b"respawn" in source:
        raise _NotForkable("it may change its interpreter")
    if _setting("_MODULE_METADATA"):
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


def _setting(name: str) -> Any:
    """Return a setting of ansible-core; None if this ansible-core does not have it."""
    known = constants.config.get_configuration_definition(name)
    return known and constants.config.get_config_value(name)
