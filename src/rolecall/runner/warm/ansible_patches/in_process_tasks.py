"""Tasks that run in the process of ansible-playbook, without a worker process.

ansible-core forks a worker for each task and host, which is a third of the cost of a warm run. A worker gives a task
its own copy of everything, its own standard streams and a process that can be killed. A task does not need that if it
is the only one at a time and runs only code of ansible-core that has no side effects: it is skipped, it includes other
tasks, its action is one of ``_PURE_ACTIONS``, or it starts one module, which is a process of its own anyway. Such a
task runs here, on copies of what it may change, and sends its messages through the queue of workers. If it meets
anything else, for example a filter or lookup that is not ansible-core's, it starts again in a worker.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from multiprocessing.reduction import ForkingPickler
from typing import Any

import ansible
import jinja2
import markupsafe
from ansible import constants
from ansible.executor import task_executor, task_queue_manager
from ansible.executor.process import worker as worker_process
from ansible.inventory.host import Host
from ansible.plugins import loader
from ansible.plugins import strategy as strategy_plugins
from ansible.utils.display import Display

try:
    from ansible._internal import _task
    from ansible._internal._templating import _jinja_plugins
except ImportError:  # before 2.19
    _task = _jinja_plugins = None

from rolecall.runner.warm.ansible_patches.reset_state import set_kubeconfig
from rolecall.runner.warm.ansible_patches.task_placement import NeedsWorker, TaskPlacement

_PURE_ACTIONS = frozenset({"assert", "debug", "fail", "normal", "set_fact", "set_stats", "validate_argument_spec"})
"""Action plugins of ansible-core that only compute a result or start one module."""

_PURE_COLLECTION_ACTIONS = (
    "ansible_collections.kubernetes.core.plugins.action.k8s",
    "ansible_collections.rolecall.util.",
)
"""Prefixes of the Python names of such action plugins in collections."""

_FILE_ARGUMENTS = frozenset({"src", "template", "kubeconfig", "local_path"})
"""With these arguments they read files, and may leave some behind."""

_PURE_LOOKUPS = frozenset({"ansible.builtin.dict", "ansible.builtin.env", "ansible.builtin.items"})
_TRUSTED_FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.abspath(package.__file__ or "")), "")  # noqa: PTH100, PTH118, PTH120
    for package in (ansible, jinja2, markupsafe)
)
_LOCAL_CONNECTIONS = frozenset({"local", "ansible.builtin.local", "ansible.legacy.local"})
_WORKER_KEYWORDS = (
    "async_val",
    "timeout",
    "throttle",
    "delegate_to",
    "until",
    "retries",
    "become",
    "debugger",
    "loop_with",
)
_VERBOSE = 3
_GET_ACTION = "_get_action_handler_with_module_context"


def install(placement: TaskPlacement) -> None:
    """Run tasks in this process from now on where that is possible."""
    make_queue = worker_process.WorkerQueue

    class Worker(strategy_plugins.WorkerProcess):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            worker_process.WorkerQueue = lambda **_: (
                None
            )  # carries answers to prompts: only a worker that is started needs it
            try:
                super().__init__(*args, **options)
            finally:
                worker_process.WorkerQueue = make_queue

        def start(self) -> None:
            if not (_may_run_in_process(self) and _ran_in_process(self, placement)):
                self.worker_queue = make_queue(ctx=worker_process.multiprocessing_context)
                with placement.in_worker():
                    super().start()

        def run(self) -> None:
            set_kubeconfig()  # that of the task: a new interpreter reads it from the environment
            super().run()

    strategy_plugins.WorkerProcess = Worker


def _may_run_in_process(worker: Any) -> bool:
    """Return whether a task is the only one at a time and uses no keyword that needs a worker."""
    task = worker._task  # noqa: SLF001 - the patch
    if len(worker._task_vars.get("ansible_play_hosts_all", ())) != 1 or worker._play_context.become:  # noqa: SLF001
        return False
    if constants.DEFAULT_DEBUG or Display().verbosity >= _VERBOSE:
        return False
    return not any(getattr(task, name, None) for name in _WORKER_KEYWORDS) and not isinstance(task.loop, list)


def _ran_in_process(worker: Any, placement: TaskPlacement) -> bool:
    """Run a task in this process; return False, with everything as it was before, if it needs a worker."""
    before = dict(vars(worker))
    messages = _HeldMessages(worker._final_q)  # noqa: SLF001 - the patch
    worker._task = worker._task.copy(exclude_tasks=True)  # noqa: SLF001 - as above
    worker._host = _copy_host(worker._host)  # noqa: SLF001 - as above
    worker._task_vars = dict(worker._task_vars)  # noqa: SLF001 - as above
    worker._final_q = messages  # noqa: SLF001 - as above
    worker._new_stdin = None  # noqa: SLF001 - what a worker before 2.19 gives to connections; ours is local
    try:
        with placement.in_process(), _guards(placement), _worker_environment(worker, messages):
            worker._run()  # noqa: SLF001 - as above
    except (NeedsWorker, SystemExit, Exception):  # noqa: BLE001 - a worker handles it as always
        vars(worker).update(before)
        return False
    messages.deliver()
    return True


def _copy_host(host: Host) -> Host:
    """Return a copy: ``WorkerProcess._run`` clears the host's attributes at its end."""
    copy = object.__new__(type(host))
    vars(copy).update(vars(host))
    return copy


@contextmanager
def _worker_environment(worker: Any, messages: "_HeldMessages") -> Iterator[None]:
    """Do what a worker does around a task: discard what is printed, and send what is displayed as a message."""
    display = Display()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        display._final_q = messages  # noqa: SLF001 - its setter refuses this process
        display.set_queue = lambda _: None  # before 2.19, `_run` calls it
        try:
            with _context(worker):
                yield
        finally:
            del display.set_queue  # uncovers the method of its class
            display._final_q = None  # noqa: SLF001 - as above
            worker_process.current_worker = None


def _context(worker: Any) -> Any:
    """Return the context that ansible-core sets around a task, if it has one; its constructors differ."""
    if _task is None:
        return nullcontext()
    if hasattr(_task.TaskContext, "create"):
        return _task.TaskContext.create(task=worker._task, task_vars=worker._task_vars, host_name=worker._host.name)  # noqa: SLF001
    return _task.TaskContext(worker._task)  # noqa: SLF001 - as above


class _HeldMessages(task_queue_manager.FinalQueue):  # type: ignore[misc]
    """Holds the messages of a task, pickled when they are sent, until the task has ended without needing a worker."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._kept: list[Any] = []

    def put(self, obj: object) -> None:
        """Hold a message."""
        self._kept.append(ForkingPickler.dumps(obj))

    def send_prompt(self, **_: object) -> None:
        """Restart the task: only a worker can wait for an answer."""
        raise NeedsWorker("it prompts for input")

    def deliver(self) -> None:
        """Send the messages."""
        for message in self._kept:
            with self._queue._wlock:  # noqa: SLF001 - as `put` of the queue does
                self._queue._writer.send_bytes(message)  # noqa: SLF001 - as above


@contextmanager
def _guards(placement: TaskPlacement) -> Iterator[None]:
    """Restart the task in a worker as soon as it does more than it may here. Workers do not have these guards."""
    executor = task_executor.TaskExecutor
    guards = [
        (executor, "_run_loop", _loop_guard(executor._run_loop, placement)),  # noqa: SLF001 - the patch
        (executor, "_get_connection", _connection_guard(executor._get_connection, placement)),  # noqa: SLF001 - the patch
        (executor, _GET_ACTION, _action_guard(getattr(executor, _GET_ACTION), placement)),
    ]
    loaders = {loader.lookup_loader: _lookup_guard}
    if _jinja_plugins:
        intercept = _jinja_plugins.JinjaPluginIntercept
        invoke = staticmethod(_plugin_guard(intercept._invoke_plugin, placement))  # noqa: SLF001 - the patch
        guards.append((intercept, "_invoke_plugin", invoke))
    else:  # before 2.19, templates call plugins directly; each task loads those that it uses
        loaders |= {loader.filter_loader: _loaded_plugin_guard, loader.test_loader: _loaded_plugin_guard}
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in guards]
    try:
        for owner, name, guard in guards:
            setattr(owner, name, guard)
        for each, around in loaders.items():
            each.get = around(each.get, placement)
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
        for each in loaders:
            del each.get  # uncovers the method of its class


def _loop_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def run_loop(executor: Any, items: list[Any]) -> Any:
        if items:  # ansible-core 2.21 calls it without any too
            placement.restart_in_worker("it is a loop")
        return original(executor, items)

    return run_loop


def _connection_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get_connection(task: Any, cvars: Any, templar: Any, current_connection: Any) -> Any:
        if current_connection not in _LOCAL_CONNECTIONS:
            placement.restart_in_worker(f"its connection is {current_connection}")
        return original(task, cvars, templar, current_connection)

    return get_connection


def _action_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get_action(*args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        if not _is_pure(found[0]):
            placement.restart_in_worker("its action plugin may have side effects")
        return found

    return get_action


def _plugin_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def invoke(instance: Any, *args: Any, **options: Any) -> Any:
        if not _is_trusted(instance):
            placement.restart_in_worker(f"it uses {instance.ansible_name}")
        return original(instance, *args, **options)

    return invoke


def _loaded_plugin_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get(name: str, *args: Any, **options: Any) -> Any:
        found = original(name, *args, **options)
        if found and not _is_trusted(found):
            placement.restart_in_worker(f"it uses {name}")
        return found

    return get


def _lookup_guard(original: Callable[..., Any], placement: TaskPlacement) -> Callable[..., Any]:
    def get(name: str, *args: Any, **options: Any) -> Any:
        found = original(name, *args, **options)
        if not (found and _is_trusted(found) and found.ansible_name in _PURE_LOOKUPS):
            placement.restart_in_worker(f"it looks up {name}")
        return found

    return get


def _is_pure(action: Any) -> bool:
    """Return whether an action plugin is known to only compute a result or start one module."""
    name = type(action).__module__
    if name.startswith(_PURE_COLLECTION_ACTIONS):
        return not _FILE_ARGUMENTS & action._task.args.keys()  # noqa: SLF001 - no public way
    folder, _, file = str(getattr(action, "_original_path", "")).rpartition("/")
    return f"{folder}/".startswith(_TRUSTED_FOLDERS) and file.removesuffix(".py") in _PURE_ACTIONS


def _is_trusted(plugin: Any) -> bool:
    """Return whether a filter, test or lookup is part of ansible-core or Jinja."""
    path = getattr(plugin, "_original_path", None)
    return bool(path.startswith(_TRUSTED_FOLDERS) if path else plugin.ansible_name.startswith("ansible.builtin."))
