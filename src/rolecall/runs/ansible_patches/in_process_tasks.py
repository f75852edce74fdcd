"""Tasks that need no worker process.

ansible-core forks a worker for each task and host, which is a third of what a warm run costs. A worker gives a task its
own copy of everything, its own standard streams and a process that may be ended. A task needs none of that when it is
the only one at a time and runs nothing but code of ansible-core's that is known to leave no trace: it is skipped,
includes others, or its action is one of `_QUIET_ACTIONS`, or starts one module, which is a process of its own anyway.
Such a task runs here, on copies of what it might change, and its messages take the way of a worker's. Whatever else
comes up, a filter or lookup of somebody else for example, lets the task begin again in a worker.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from multiprocessing.reduction import ForkingPickler
from typing import Any

import ansible
import jinja2
import markupsafe
from ansible import constants
from ansible._internal import _task
from ansible._internal._templating import _jinja_plugins
from ansible.executor import task_executor, task_queue_manager
from ansible.executor.process import worker as worker_process
from ansible.inventory.host import Host
from ansible.plugins import loader
from ansible.plugins import strategy as strategy_plugins
from ansible.utils.display import Display

from rolecall.runs.ansible_patches.task_placement import NeedsWorker, TaskPlacement

_QUIET_ACTIONS = frozenset({"assert", "debug", "fail", "normal", "set_fact", "set_stats", "validate_argument_spec"})
"""ansible-core's action plugins that do nothing but compute a result or start one module."""

_COLLECTION_ACTIONS = ("ansible_collections.kubernetes.core.plugins.action.k8s", "ansible_collections.rolecall.util.")
"""How the names of action plugins of collections begin that do no more either."""
_FILE_ARGUMENTS = frozenset({"src", "template", "kubeconfig", "local_path"})
"""With these they read files, and may leave some."""

_QUIET_LOOKUPS = frozenset({"ansible.builtin.dict", "ansible.builtin.env", "ansible.builtin.items"})
_TRUSTED_FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.abspath(package.__file__ or "")), "")  # noqa: PTH100, PTH118, PTH120
    for package in (ansible, jinja2, markupsafe)
)
_LOCAL_CONNECTIONS = frozenset({"local", "ansible.builtin.local", "ansible.legacy.local"})
_UNUSUAL = ("async_val", "timeout", "throttle", "delegate_to", "until", "retries", "become", "debugger", "loop_with")
_TALKATIVE = 3
_GET_ACTION = "_get_action_handler_with_module_context"


def install(placement: TaskPlacement) -> None:
    """Spare workers from now on in this process; `place` is that of its tasks."""
    make_queue = worker_process.WorkerQueue

    class Worker(strategy_plugins.WorkerProcess):  # type: ignore[misc]
        def __init__(self, **given: Any) -> None:
            worker_process.WorkerQueue = lambda **_: None  # for answers to questions: only one that starts needs it
            try:
                super().__init__(**given)
            finally:
                worker_process.WorkerQueue = make_queue

        def start(self) -> None:
            if not (_is_usual(self) and _has_run_inside(self, placement)):
                self.worker_queue = make_queue(ctx=worker_process.multiprocessing_context)
                with placement.in_worker():
                    super().start()

    strategy_plugins.WorkerProcess = Worker


def _is_usual(worker: Any) -> bool:
    """Tell whether a task is the only one at a time and asks for nothing special."""
    task = worker._task  # noqa: SLF001 - the seam
    if len(worker._task_vars.get("ansible_play_hosts_all", ())) != 1 or worker._play_context.become:  # noqa: SLF001
        return False
    if constants.DEFAULT_DEBUG or Display().verbosity >= _TALKATIVE:
        return False
    return not any(getattr(task, name, None) for name in _UNUSUAL) and not isinstance(task.loop, list)


def _has_run_inside(worker: Any, placement: TaskPlacement) -> bool:
    """Run a task in this process; return False when it has been given up, with everything as it was before."""
    before = dict(vars(worker))
    messages = _Messages(worker._final_q)  # noqa: SLF001 - the seam
    worker._task = worker._task.copy(exclude_tasks=True)  # noqa: SLF001 - as above
    worker._host = _copy_of(worker._host)  # noqa: SLF001 - as above
    worker._task_vars = dict(worker._task_vars)  # noqa: SLF001 - as above
    worker._final_q = messages  # noqa: SLF001 - as above
    try:
        with placement.inside(), _guarded(placement), _surroundings(worker, messages):
            worker._run()  # noqa: SLF001 - as above
    except (NeedsWorker, SystemExit, Exception):  # noqa: BLE001 - a worker does with it what it always does
        vars(worker).update(before)
        return False
    messages.deliver()
    return True


def _copy_of(host: Host) -> Host:
    """Return a copy; a worker empties its own before it ends."""
    copy = object.__new__(type(host))
    vars(copy).update(vars(host))
    return copy


@contextmanager
def _surroundings(worker: Any, messages: "_Messages") -> Iterator[None]:
    """Give a task what its worker would give it: what is printed is caught, what is displayed becomes a message."""
    display = Display()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        display._final_q = messages  # noqa: SLF001 - the way in is closed in the process of ansible-playbook
        try:
            with _context(worker):
                yield
        finally:
            display._final_q = None  # noqa: SLF001 - as above
            worker_process.current_worker = None


def _context(worker: Any) -> Any:
    """Return what ansible-core puts around a task, in 2.19 and in the versions after it."""
    if hasattr(_task.TaskContext, "create"):
        return _task.TaskContext.create(task=worker._task, task_vars=worker._task_vars, host_name=worker._host.name)  # noqa: SLF001
    return _task.TaskContext(worker._task)  # noqa: SLF001 - as above


class _Messages(task_queue_manager.FinalQueue):  # type: ignore[misc]
    """Keeps what a task says, each message as it was when it was said, until it is certain that the task may say it."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._kept: list[Any] = []

    def put(self, obj: object) -> None:
        """Take a message."""
        self._kept.append(ForkingPickler.dumps(obj))

    def send_prompt(self, **_: object) -> None:
        """Give the task up: only a worker can wait for an answer."""
        raise NeedsWorker("it asks a question")

    def deliver(self) -> None:
        """Send what was taken."""
        for message in self._kept:
            with self._queue._wlock:  # noqa: SLF001 - as `put` of the queue does
                self._queue._writer.send_bytes(message)  # noqa: SLF001 - as above


@contextmanager
def _guarded(placement: TaskPlacement) -> Iterator[None]:
    """Give a task up as soon as it does more than it may here. A worker has none of these guards."""
    executor, intercept = task_executor.TaskExecutor, _jinja_plugins.JinjaPluginIntercept
    guards = (
        (executor, "_run_loop", _loop_guard(placement)),
        (executor, "_get_connection", _connection_guard(executor._get_connection, placement)),  # noqa: SLF001 - the seam
        (executor, _GET_ACTION, _action_guard(getattr(executor, _GET_ACTION), placement)),
        (intercept, "_invoke_plugin", staticmethod(_plugin_guard(intercept._invoke_plugin, placement))),  # noqa: SLF001
    )
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in guards]
    get_lookup = loader.lookup_loader.get
    try:
        for owner, name, guard in guards:
            setattr(owner, name, guard)
        loader.lookup_loader.get = _lookup_guard(get_lookup, placement)
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
        del loader.lookup_loader.get  # uncovers the method of its class


def _loop_guard(placement: TaskPlacement) -> Callable[..., Any]:
    def run_loop(*_: object) -> None:
        placement.give_up("it is a loop")

    return run_loop


def _connection_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get_connection(task: Any, cvars: Any, templar: Any, current_connection: Any) -> Any:
        if current_connection not in _LOCAL_CONNECTIONS:
            placement.give_up(f"its connection is {current_connection}")
        return original(task, cvars, templar, current_connection)

    return get_connection


def _action_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get_action(*args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        if not _is_quiet(found[0]):
            placement.give_up("its action may do anything")
        return found

    return get_action


def _plugin_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def invoke(instance: Any, *args: Any, **options: Any) -> Any:
        if not _is_trusted(instance):
            placement.give_up(f"it uses {instance.ansible_name}")
        return original(instance, *args, **options)

    return invoke


def _lookup_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get(name: str, *args: Any, **options: Any) -> Any:
        found = original(name, *args, **options)
        if not (found and _is_trusted(found) and found.ansible_name in _QUIET_LOOKUPS):
            placement.give_up(f"it looks up {name}")
        return found

    return get


def _is_quiet(action: Any) -> bool:
    """Tell whether an action plugin is known to do nothing but compute a result or start one module."""
    name = type(action).__module__
    if name.startswith(_COLLECTION_ACTIONS):
        return not _FILE_ARGUMENTS & action._task.args.keys()  # noqa: SLF001 - no public way
    folder, _, file = str(getattr(action, "_original_path", "")).rpartition("/")
    return f"{folder}/".startswith(_TRUSTED_FOLDERS) and file.removesuffix(".py") in _QUIET_ACTIONS


def _is_trusted(plugin: Any) -> bool:
    """Tell whether a plugin of templates comes with ansible-core or Jinja."""
    path = getattr(plugin, "_original_path", None)
    return bool(path.startswith(_TRUSTED_FOLDERS) if path else plugin.ansible_name.startswith("ansible.builtin."))
