"""Tasks that run in the process of ansible-playbook, without a worker process.

ansible-core forks a worker for each task and host, which is a third of the cost of a warm run. A worker gives a task
its own copy of everything, its own standard streams and a process that can be killed. A task doesn't need that if it is
the only one at a time and runs only code of ansible-core without side effects: it is skipped, it includes other tasks,
its action is one of ``_PURE_ACTIONS``, or it starts one module, which is a separate process anyway. Such a task runs
here, on copies of everything that it may change, and sends its messages through the queue of workers. If it uses
anything else, for example a filter or lookup that isn't ansible-core's, it restarts in a worker.
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
from ansible.plugins import loader
from ansible.plugins import strategy as strategy_plugins
from ansible.utils.display import Display

try:
    from ansible._internal import _task
    from ansible._internal._templating import _jinja_plugins
except ImportError:  # before 2.19
    _task = _jinja_plugins = None

from rolecall.runner.warm.ansible_patches.reset_state import set_kubeconfig
from rolecall.runner.warm.playbook_process import NeedsWorker, TaskPlacement

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
_TRUSTED_DIRECTORIES = tuple(
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
    """Run tasks in this process if possible."""
    make_queue = worker_process.WorkerQueue

    class Worker(strategy_plugins.WorkerProcess):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            # The queue carries answers to prompts: only a worker that is started needs it.
            worker_process.WorkerQueue = lambda **_: None
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
    # A copy, because `WorkerProcess._run` clears the host's attributes at its end.
    worker._host = object.__new__(type(before["_host"]))  # noqa: SLF001 - as above
    vars(worker._host).update(vars(before["_host"]))  # noqa: SLF001 - as above
    worker._task_vars = dict(worker._task_vars)  # noqa: SLF001 - as above
    worker._final_q = messages  # noqa: SLF001 - as above
    worker._new_stdin = None  # noqa: SLF001 - what a worker before 2.19 gives to connections; ours is local
    try:
        with placement.in_process(), _guards(), _worker_environment(worker, messages):
            worker._run()  # noqa: SLF001 - as above
    except (NeedsWorker, SystemExit, Exception):  # noqa: BLE001 - a worker handles it as always
        vars(worker).update(before)
        return False
    messages.deliver()
    return True


@contextmanager
def _worker_environment(worker: Any, messages: "_HeldMessages") -> Iterator[None]:
    """Do the same around a task as a worker: discard printed output, and send displayed messages."""
    display = Display()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        display._final_q = messages  # noqa: SLF001 - its setter refuses this process
        display.set_queue = lambda _: None  # before 2.19, `_run` calls it
        try:
            with _context(worker) as context:
                yield
            if hasattr(context, "_new_secrets"):  # since 2.22; nothing removes it, because a worker ends
                context._new_secrets.unregister()  # noqa: SLF001 - as above
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
        """Hold a message; since 2.22 in an envelope, without secrets, because this process has registered them."""
        if hasattr(task_queue_manager, "_Envelope"):
            obj = task_queue_manager._Envelope(message=obj)  # noqa: SLF001 - as `put` of the queue does
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
def _guards() -> Iterator[None]:
    """Restart the task in a worker as soon as it does more than it may here. Workers don't have these guards."""
    executor = task_executor.TaskExecutor
    guards = [
        (executor, "_run_loop", _check_before(executor._run_loop, _loop_reason)),  # noqa: SLF001 - the patch
        (executor, "_get_connection", _check_before(executor._get_connection, _connection_reason)),  # noqa: SLF001 - the patch
        (executor, _GET_ACTION, _check_after(getattr(executor, _GET_ACTION), _action_reason)),
    ]
    loaders = {loader.lookup_loader: _lookup_reason}
    if _jinja_plugins:
        intercept = _jinja_plugins.JinjaPluginIntercept
        invoke = staticmethod(_check_before(intercept._invoke_plugin, _invocation_reason))  # noqa: SLF001 - the patch
        guards.append((intercept, "_invoke_plugin", invoke))
    else:  # before 2.19, templates call plugins directly; each task loads those that it uses
        loaders |= {loader.filter_loader: _plugin_reason, loader.test_loader: _plugin_reason}
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in guards]
    try:
        for owner, name, guard in guards:
            setattr(owner, name, guard)
        for each, reason in loaders.items():
            each.get = _check_after(each.get, reason)
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
        for each in loaders:
            del each.get  # uncovers the method of its class


def _check_before(original: Callable[..., Any], reason_for: Callable[..., str]) -> Callable[..., Any]:
    def checked(*args: Any, **options: Any) -> Any:
        if reason := reason_for(*args, **options):
            raise NeedsWorker(reason)
        return original(*args, **options)

    return checked


def _check_after(original: Callable[..., Any], reason_for: Callable[..., str]) -> Callable[..., Any]:
    def checked(*args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        if reason := reason_for(found, *args, **options):
            raise NeedsWorker(reason)
        return found

    return checked


def _loop_reason(_executor: Any, items: list[Any]) -> str:
    return "it is a loop" if items else ""  # ansible-core 2.21 calls it without any too


def _connection_reason(_executor: Any, cvars: Any, templar: Any, current_connection: Any) -> str:  # noqa: ARG001 - by name
    return "" if current_connection in _LOCAL_CONNECTIONS else f"its connection is {current_connection}"


def _action_reason(found: Any, *_: Any, **_options: Any) -> str:
    return "" if _is_pure(found[0]) else "its action plugin may have side effects"


def _invocation_reason(instance: Any, *_: Any, **_options: Any) -> str:
    return "" if _is_trusted(instance) else f"it uses {instance.ansible_name}"


def _plugin_reason(found: Any, name: str, *_: Any, **_options: Any) -> str:
    return f"it uses {name}" if found and not _is_trusted(found) else ""


def _lookup_reason(found: Any, name: str, *_: Any, **_options: Any) -> str:
    is_pure = found and _is_trusted(found) and found.ansible_name in _PURE_LOOKUPS
    return "" if is_pure else f"it looks up {name}"


def _is_pure(action: Any) -> bool:
    """Return whether an action plugin is known to only compute a result or start one module."""
    name = type(action).__module__
    if name.startswith(_PURE_COLLECTION_ACTIONS):
        return not _FILE_ARGUMENTS & action._task.args.keys()  # noqa: SLF001 - no public way
    directory, _, file = str(getattr(action, "_original_path", "")).rpartition("/")
    return f"{directory}/".startswith(_TRUSTED_DIRECTORIES) and file.removesuffix(".py") in _PURE_ACTIONS


def _is_trusted(plugin: Any) -> bool:
    """Return whether a filter, test or lookup is part of ansible-core or Jinja."""
    path = getattr(plugin, "_original_path", None)
    return bool(path.startswith(_TRUSTED_DIRECTORIES) if path else plugin.ansible_name.startswith("ansible.builtin."))
