"""The functions of ansible-core that a planned run changes, in ansible-playbook and with it in all of its workers."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.executor import task_executor
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.plugins import action as action_plugins
from ansible.plugins import strategy
from ansible.utils.display import Display

from rolecall.runner.runs.planned import lookups, unknown_result, waiting
from rolecall.runner.runs.planned.clock import TaskClock
from rolecall.runner.runs.planned.journal import RUN_COMMANDS_VARIABLE, Journal
from rolecall.runner.runs.planned.plan_files import PlanFiles
from rolecall.runner.runs.planned.plan_progress import PlanProgress
from rolecall.runner.runs.planned.task_actions import TaskActions, name_of
from rolecall.runner.runs.planned.unknown_result import PlanEnded

_GET_ACTION = "_get_action_handler_with_module_context"
_PRIVATE_DIRECTORIES = {"ANSIBLE_ASYNC_DIR": "async", "ANSIBLE_REMOTE_TEMP": "tmp", "ANSIBLE_REMOTE_TMP": "tmp"}
"""What Ansible itself would write into the home directory."""


def install(folder: Path, environment: Mapping[str, str], clock: TaskClock) -> None:
    """Make this process that of a planned run. Raises OSError if the plan's folder cannot be written."""
    for name, directory in _PRIVATE_DIRECTORIES.items():
        os.environ[name] = str(folder / directory)
    files, progress = PlanFiles(folder), PlanProgress(Journal(folder))
    runs_commands = environment.get(RUN_COMMANDS_VARIABLE) == "1"
    actions = TaskActions(progress, files, environment, runs_commands=runs_commands)
    _Hooks(progress, actions, clock).install()
    unknown_result.install(progress.end_by_use)
    unknown_result.register_whole_results(lambda: progress.withheld_now)
    lookups.install(name_of, actions.check_lookup, files)
    lookups.read_from(files)
    waiting.install()
    progress.journal.start()


class _Hooks:
    """Functions of ansible-core, each with something around it."""

    def __init__(self, progress: PlanProgress, actions: TaskActions, clock: TaskClock) -> None:
        self._progress = progress
        self._journal = progress.journal
        self._actions = actions
        self._clock = clock

    def install(self) -> None:
        """Change the classes of ansible-core."""
        for owner, name, around in (
            (task_executor.TaskExecutor, "run", self._around_run),
            (task_executor.TaskExecutor, _GET_ACTION, self._around_get_action),
            (action_plugins.ActionBase, "_execute_module", self._around_module),
            (strategy.StrategyBase, "_queue_task", self._around_queue),
            (strategy.StrategyBase, "_execute_meta", self._around_meta),
            (strategy.StrategyBase, "_process_pending_results", self._around_results),
            (TaskQueueManager, "run", self._around_play),
        ):
            setattr(owner, name, around(getattr(owner, name)))

    def _around_run(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """In a worker: let a task fail that has ended the plan, even if something has swallowed the exception."""

        def run(executor: Any) -> Any:
            self._progress.begin(executor._host, executor._task)  # noqa: SLF001 - no public way
            try:
                result = original(executor)
            except PlanEnded:
                result = None
            if self._progress.ended is None:
                return result
            executor._task.ignore_errors = False  # noqa: SLF001 - as above
            return _failure(self._progress.ended.message)

        return run

    def _around_get_action(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_action(executor: Any, templar: Any) -> Any:
            if hasattr(task_executor, "remove_omit"):
                _complete_arguments(executor, templar)
            return self._actions.action_for(executor, lambda: original(executor, templar))

        return get_action

    def _around_module(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Check the modules that an action plugin starts: a role can replace those, and choose those for facts."""

        def execute(action: Any, module_name: str | None = None, *args: Any, **options: Any) -> Any:
            task = action._task  # noqa: SLF001 - as the original does
            self._actions.check_module(module_name or task.action, task)
            return original(action, module_name, *args, **options)

        return execute

    def _around_queue(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """In ansible-playbook: start no task after the end, and each one at its time."""

        def queue(base: Any, host: Any, task: Any, task_vars: Any, play_context: Any) -> Any:
            if self._journal.has_ended:
                return None
            self._progress.begin(host, task)
            self._clock.begin(task.get_name(), host.get_name())
            return original(base, host, task, task_vars, play_context)

        return queue

    def _around_meta(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Know of tasks that have no worker, for their conditions."""

        def execute(base: Any, task: Any, play_context: Any, iterator: Any, target_host: Any) -> Any:
            self._progress.enter(target_host, task)
            return original(base, task, play_context, iterator, target_host)

        return execute

    def _around_results(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """In ansible-playbook: after the end nothing is started any more, no rescue, no always and no handler."""

        def process(base: Any, *args: Any, **options: Any) -> Any:
            results = original(base, *args, **options)
            if results and self._journal.has_ended:
                base._tqm.terminate()  # noqa: SLF001 - no public way
            return results

        return process

    def _around_play(self, original: Callable[..., int]) -> Callable[..., int]:
        """In ansible-playbook: an ended plan is no success, and has no further plays."""

        def run(manager: Any, play: Any) -> int:
            if self._journal.has_ended:
                return int(manager.RUN_FAILED_HOSTS)
            try:
                result = original(manager, play)
            except PlanEnded as ended:  # outside of a task's own process: a condition of a meta task, for example
                manager.terminate()
                Display().error(str(ended))
            return int(manager.RUN_FAILED_HOSTS) if self._journal.has_ended else result

        return run


def _complete_arguments(executor: Any, templar: Any) -> None:
    """Add the defaults of its module to a task, and remove omitted arguments, because a plan judges by the arguments.

    ansible-core before 2.19 does both after it has found the action.
    """
    task = executor._task  # noqa: SLF001 - no public way
    loader = executor._shared_loader_obj.module_loader  # noqa: SLF001 - as above
    module = loader.find_plugin_with_context(task.action, collection_list=task.collections)
    name = module.resolved_fqcn if module.resolved and module.action_plugin else task.resolved_action
    groups = task._parent._play._action_groups  # noqa: SLF001 - as the original
    arguments = task_executor.get_action_args_with_defaults(
        name, task.args, task.module_defaults, templar, action_groups=groups
    )
    omitted = executor._job_vars.get("omit")  # noqa: SLF001 - as the original
    task.args = arguments if omitted is None else task_executor.remove_omit(arguments, omitted)
    task.module_defaults = []  # else what the plan takes away would come back


def _failure(message: str) -> Any:
    """Return the result of a failed task, as this version of ansible-core makes it."""
    try:
        from ansible._internal._task import UnifiedTaskResult  # noqa: PLC0415 - 2.21 has it
    except ImportError:
        return {"failed": True, "changed": False, "msg": message}
    return UnifiedTaskResult.create_from_action_exception(AnsibleError(message))
