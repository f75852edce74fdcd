"""Which modules are forked, and the seam through which they are.

Four functions of ansible-core are wrapped in the child that runs ansible-playbook: the one that executes a module, the
one that says whether a module goes through standard input (a forked one needs no file either), the one that builds the
payload, and the local connection's that runs a command. Everything between and after them is Ansible's own. What is not
eligible raises `_NotWarm` before anything has been done and takes the ordinary way.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ansible import constants
from ansible.executor import module_common
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins import action as action_plugins
from ansible.plugins import loader
from ansible.plugins.connection import ConnectionBase
from ansible.utils.display import Display

from rolecall.runs.ansible_patches import temporary_folders
from rolecall.runs.ansible_patches.module_process import ModuleCall, run_module
from rolecall.runs.ansible_patches.task_placement import ModuleResult, TaskPlacement
from rolecall.runs.forkserver.playbook_process import ForkContext

PROFILE = "legacy"
_LOCAL = "ansible.plugins.connection.local"
_SHELL = "ansible.plugins.shell.sh"
_EXECUTABLE = "/bin/sh"
_START_UP_PREFIXES = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_")
_START_UP = frozenset({"LANG", "LANGUAGE", "PATH", "HOME"})


class _NotWarm(Exception):  # noqa: N818 - no error
    """Says why a module takes the ordinary way."""


class _Payload(bytes):
    """Stands for the payload of a module that will be forked."""

    call: ModuleCall


def install(context: ForkContext, placement: TaskPlacement) -> None:
    """Let eligible modules be forked from now on in this process and its workers; `place` is that of its tasks."""
    seam = _Seam(context, placement)
    base = action_plugins.ActionBase
    base._execute_module = seam.around_execute(base._execute_module)  # noqa: SLF001 - the seam
    base._is_pipelining_enabled = seam.around_pipelining(base._is_pipelining_enabled)  # noqa: SLF001 - the seam
    action_plugins.modify_module = seam.around_build(action_plugins.modify_module)
    local = loader.connection_loader.get("ansible.builtin.local", class_only=True)
    local.exec_command = seam.around_command(local.exec_command)
    temporary_folders.install(lambda action: not _why_not_local(action))


class _Seam:
    """The four wrappers; one task is worked on at a time in each process."""

    def __init__(self, context: ForkContext, placement: TaskPlacement) -> None:
        self._warmth = context
        self._place = placement
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
            except _NotWarm as reason:
                self._place.require_worker(str(reason))
                self._warmth.note(f"module {name} is not forked: {reason}")
            finally:
                self._is_trying = False
            return original(action, *args, **options)

        return execute

    def around_pipelining(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def is_enabled(action: Any, module_style: str, wrap_async: bool = False) -> bool:  # noqa: FBT001, FBT002
            return self._is_trying or original(action, module_style, wrap_async)

        return is_enabled

    def around_build(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def build(**given: Any) -> Any:
            return _build(**given) if self._is_trying else original(**given)

        return build

    def around_command(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(connection: Any, cmd: Any, in_data: Any = None, sudoable: bool = True) -> Any:  # noqa: FBT001, FBT002
            if not isinstance(in_data, _Payload):
                self._place.require_worker("it starts a program")
                return original(connection, cmd, in_data=in_data, sudoable=sudoable)
            ConnectionBase.exec_command(connection, cmd, in_data=in_data, sudoable=sudoable)
            Display().vvv(f"EXEC module {in_data.call.module} in a forked process")
            return self._run(in_data.call, connection.cwd)

        return execute

    def _run(self, call: ModuleCall, cwd: bytes | None) -> ModuleResult:
        if outcome := self._place.done_before(call.module):
            return outcome
        outcome = run_module(call, cwd, self._warmth.titles, own_session=self._place.is_inside)
        self._place.note(call.module, outcome)
        return outcome


def _check_task(action: Any, *, is_async: bool) -> None:
    if is_async or action._task.async_val:  # noqa: SLF001 - no public way
        raise _NotWarm("it runs in the background")
    if reason := _why_not_local(action):
        raise _NotWarm(reason)


def _why_not_local(action: Any) -> str:
    """Return why a task does not run on this machine, as this user and with the usual shell; empty text if it does."""
    connection = action._connection  # noqa: SLF001 - no public way
    executable = action._play_context.executable  # noqa: SLF001 - no public way
    if type(connection).__module__ != _LOCAL:
        return f"its connection is {connection.transport}"
    if connection.become is not None:
        return "it runs as somebody else"
    if type(connection._shell).__module__ != _SHELL or executable != _EXECUTABLE:  # noqa: SLF001 - no public way
        return f"its shell is {executable}"
    return ""


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
    """Return what stands for the payload. Raises _NotWarm, and what the original raises to find an interpreter."""
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
    return module_common._BuiltModule(  # noqa: SLF001 - what the original returns
        b_module_data=payload, module_style="new", shebang=shebang, serialization_profile=PROFILE
    )


def _importable(path: str) -> tuple[str, str]:
    """Return the module's full Python name and the folder from which it is imported."""
    try:
        name = module_common._get_ansible_module_fqn(path)  # noqa: SLF001 - the original's own rule
    except ValueError:
        raise _NotWarm("it belongs to a role or a playbook") from None
    folder = path.removesuffix(".py").removesuffix(name.replace(".", "/"))
    root = name.partition(".")[0]
    if root == "ansible":
        own = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["ansible"].__file__ or "")))  # noqa: PTH100, PTH120
        if os.path.abspath(folder) != own:  # noqa: PTH100 - plain text
            raise _NotWarm(f"{path} is not part of the ansible-core in use")
    if shadowed := _shadowed_utilities():
        raise _NotWarm(f"module_utils are replaced: {', '.join(shadowed)}")
    return name, folder


def _shadowed_utilities() -> list[str]:
    """Return the files in additional module_utils folders that stand in for ansible-core's own."""
    *others, own = [path for path in loader.module_utils_loader._get_paths(subdirs=False)]  # noqa: SLF001, C416
    names = {name.removesuffix(".py") for folder in others if os.path.isdir(folder) for name in os.listdir(folder)}  # noqa: PTH112, PTH208
    return sorted(names & {name.removesuffix(".py") for name in os.listdir(own)} - {"__init__", "__pycache__"})  # noqa: PTH208


def _check_source(source: bytes) -> None:
    is_new_style = module_common.NEW_STYLE_PYTHON_MODULE_RE.search(source)
    if not is_new_style or module_common.REPLACER in source or module_common._is_binary(source):  # noqa: SLF001
        raise _NotWarm("it is no Python module of the new style")
    if b"respawn" in source:
        raise _NotWarm("it may change its interpreter")
    if constants.config.get_config_value("_MODULE_METADATA"):
        raise _NotWarm("modules have metadata")


def _check_interpreter(shebang: str) -> None:
    interpreter = shebang.removeprefix("#!")
    own = os.path.dirname(sys.executable)  # noqa: PTH120 - plain text
    is_same = os.path.dirname(interpreter) == own and os.path.realpath(interpreter) == os.path.realpath(sys.executable)  # noqa: PTH120
    if not is_same:
        raise _NotWarm(f"its interpreter is {interpreter}")


def _checked_environment(environment: Mapping[str, Any]) -> dict[str, str]:
    for name in environment:
        if name in _START_UP or name.startswith(_START_UP_PREFIXES):
            raise _NotWarm(f"its environment sets {name}")
    return {str(name): str(value) for name, value in environment.items()}


def _encoded(module_args: dict[str, Any]) -> str:
    encoder = get_module_encoder(PROFILE, Direction.CONTROLLER_TO_MODULE)
    try:
        return json.dumps({"ANSIBLE_MODULE_ARGS": module_args}, cls=encoder)
    except TypeError:
        raise _NotWarm("its arguments are no JSON") from None


def _open_files_limit(task_vars: Mapping[str, Any]) -> int:
    limit = constants.config.get_config_value("PYTHON_MODULE_RLIMIT_NOFILE", variables=task_vars)
    if not isinstance(limit, int):
        raise _NotWarm("its limit of open files is a template")
    return limit
