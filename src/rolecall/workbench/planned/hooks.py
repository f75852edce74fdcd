"""The functions of ansible-core that a planned run changes, in ansible-playbook and thereby in all of its workers.

Lookups that compute, read files, or query Kubernetes run; the others end the plan. A lookup runs when its result is
used, so it can't be skipped.
"""

import glob
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.executor import task_executor
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins import action as action_plugins
from ansible.plugins import loader, strategy
from ansible.utils.display import Display

from rolecall.system.wrapping import wrap
from rolecall.workbench.planned.actions import LOOKUPS, WITHHELD_LOOKUPS
from rolecall.workbench.planned.classification import ActionCategory, Verdict, reason_elsewhere
from rolecall.workbench.planned.files import PlanFiles
from rolecall.workbench.planned.journal import RUN_COMMANDS_VARIABLE, Journal, TaskClock
from rolecall.workbench.planned.tasks import (
    PlanEnded,
    PlanProgress,
    TaskActions,
    install_fast_waits,
    install_unknown_results,
    name_of,
    register_whole_results,
)

_PRIVATE_DIRECTORIES = {"ANSIBLE_ASYNC_DIR": "async", "ANSIBLE_REMOTE_TEMP": "tmp", "ANSIBLE_REMOTE_TMP": "tmp"}
"""Directories that Ansible itself would create in the home directory."""

_KUBERNETES = "kubernetes.core.k8s"
_UNKNOWN = "may run a program or reach another host"


def install(directory: Path, environment: Mapping[str, str], clock: TaskClock) -> None:
    """Make this process that of a planned run. Raises OSError if the plan's directory can't be written."""
    for name, private in _PRIVATE_DIRECTORIES.items():
        os.environ[name] = str(directory / private)
    files, progress = PlanFiles(directory), PlanProgress(Journal(directory))
    runs_commands = environment.get(RUN_COMMANDS_VARIABLE) == "1"
    actions = TaskActions(progress, files, environment, runs_commands=runs_commands)
    hooks = _Hooks(progress, clock)
    for owner, name, wrapper in (
        (task_executor.TaskExecutor, "run", hooks.run),
        (task_executor.TaskExecutor, "_get_action_handler_with_module_context", actions.get_action),
        (action_plugins.ActionBase, "_execute_module", actions.execute_module),
        (strategy.StrategyBase, "_queue_task", hooks.queue_task),
        (strategy.StrategyBase, "_execute_meta", hooks.execute_meta),
        (strategy.StrategyBase, "_process_pending_results", hooks.process_results),
        (TaskQueueManager, "run", hooks.run_play),
    ):
        wrap(owner, name, wrapper)
    install_unknown_results(progress.end_by_use)
    register_whole_results(lambda: progress.withheld_now)
    _install_lookups(actions.check_lookup, files)
    _install_reads(files)
    install_fast_waits()
    progress.journal.start()


class _Hooks:
    """Wrappers of methods of ansible-core; each receives the original first."""

    def __init__(self, progress: PlanProgress, clock: TaskClock) -> None:
        self._progress = progress
        self._journal = progress.journal
        self._clock = clock

    def run(self, original: Callable[[Any], Any], executor: Any) -> Any:
        """In a worker: let a task fail that has ended the plan, even if the exception was suppressed."""
        self._progress.begin(executor._host, executor._task)  # noqa: SLF001 - no public way
        try:
            result = original(executor)
        except PlanEnded:
            result = None
        if self._progress.ended is None:
            return result
        executor._task.ignore_errors = False  # noqa: SLF001 - as above
        return _failure(self._progress.ended.message)

    def queue_task(
        self, original: Callable[..., Any], base: Any, host: Any, task: Any, *args: Any, **options: Any
    ) -> Any:
        """In ansible-playbook: start no task after the end, and each task at its time."""
        if self._journal.has_ended:
            return None
        self._progress.begin(host, task)
        self._clock.begin(task.get_name(), host.get_name())
        return original(base, host, task, *args, **options)

    def execute_meta(  # noqa: PLR0913, PLR0917 - the arguments of the original
        self, original: Callable[..., Any], base: Any, task: Any, play_context: Any, iterator: Any, target_host: Any
    ) -> Any:
        """Record tasks that have no worker, for their conditions."""
        self._progress.enter(target_host, task)
        return original(base, task, play_context, iterator, target_host)

    def process_results(self, original: Callable[..., Any], base: Any, *args: Any, **options: Any) -> Any:
        """In ansible-playbook: start nothing after the end, no rescue, no always, and no handler."""
        results = original(base, *args, **options)
        if results and self._journal.has_ended:
            base._tqm.terminate()  # noqa: SLF001 - no public way
        return results

    def run_play(self, original: Callable[..., int], manager: Any, play: Any) -> int:
        """In ansible-playbook: an ended plan isn't successful, and has no further plays."""
        if self._journal.has_ended:
            return int(manager.RUN_FAILED_HOSTS)
        try:
            result = original(manager, play)
        except PlanEnded as ended:  # outside a task's own process: a condition of a meta task, for example
            manager.terminate()
            Display().error(str(ended))
        return int(manager.RUN_FAILED_HOSTS) if self._journal.has_ended else result


def _failure(message: str) -> Any:
    """Return the result of a failed task, as this version of ansible-core makes it."""
    try:
        from ansible._internal._task import UnifiedTaskResult  # noqa: PLC0415 - 2.21 has it
    except ImportError:
        return {"failed": True, "changed": False, "msg": message}
    return UnifiedTaskResult.create_from_action_exception(AnsibleError(message))


def _install_lookups(on_withheld: Callable[[str, Verdict], None], files: PlanFiles) -> None:
    """Check each lookup before it runs, in this process and its workers.

    ``on_withheld`` ends the plan because of a lookup that must not run.
    """

    def get_with_context(original: Callable[..., Any], requested: str, *args: Any, **options: Any) -> Any:
        found = original(requested, *args, **options)
        if found.object is not None and not options.get("class_only"):
            name = name_of(getattr(found.object, "_original_path", ""))
            if name not in LOOKUPS:
                reason = WITHHELD_LOOKUPS.get(name, _UNKNOWN) if name else "a lookup of the role"
                on_withheld(name or requested, Verdict(ActionCategory.WITHHELD, reason))
            wrap(
                found.object,
                "run",
                lambda run, *run_args, **given: guarded(run, found.object, name, *run_args, **given),
            )
        return found

    def guarded(
        run: Callable[..., Any], lookup: Any, name: str, terms: list[Any], variables: Any = None, **options: Any
    ) -> Any:
        """Check or change the terms and options of a lookup."""
        if name == _KUBERNETES and (reason := reason_elsewhere(options, {}, os.environ)):
            on_withheld(name, Verdict(ActionCategory.WITHHELD, reason, is_final=True))
        if name == "ansible.builtin.password":
            terms = [_password_term(term, lookup, files) for term in terms]
        found = run(terms, variables, **options)
        if name == "ansible.builtin.fileglob":  # a real run would find the files that this run has written, too
            absolute = [files.inside(str(term)) for term in terms if str(term).startswith("/")]
            own = sorted(path for term in absolute for path in glob.glob(term))  # noqa: PTH207 - plain text
            found = list(dict.fromkeys(files.outward([*found, *own])))
        return found

    wrap(loader.lookup_loader, "get_with_context", get_with_context)


def _password_term(term: str, lookup: Any, files: PlanFiles) -> str:
    """Return the term with which the lookup keeps its password in the plan's directory."""
    path, *rest = shlex.split(str(term))
    if path == os.devnull:
        return term
    real = lookup._loader.path_dwim(path)  # noqa: SLF001 - no public way
    own = files.writable(real) if os.path.exists(real) else files.inside(real)  # noqa: PTH110 - plain text
    return shlex.join([own, *rest])


def _install_reads(files: PlanFiles) -> None:
    """Let actions and lookups in ansible-playbook find the files that the run has written."""

    def find(
        original: Callable[..., str], self: Any, where: Any, directory: str, source: Any, *args: Any, **options: Any
    ) -> str:
        path = os.fsdecode(source) if isinstance(source, (str, bytes)) else ""
        if path.startswith("/") and files.readable(path) != path:
            source = files.readable(path)
        return original(self, where, directory, source, *args, **options)

    for name in ("path_dwim_relative", "path_dwim_relative_stack"):
        wrap(DataLoader, name, find)
    wrap(DataLoader, "path_dwim", lambda original, self, given: files.readable(original(self, given)))
