"""The functions of ansible-core that a planned run changes, in ansible-playbook and with it in all of its workers.

Lookups of a planned run: those that compute, read files or ask Kubernetes run, the others end the plan.

A lookup runs when its result is used, so there is nothing to skip.
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

from rolecall.runner.runs.planned import tasks as waiting
from rolecall.runner.runs.planned import unknown_result
from rolecall.runner.runs.planned.classification import Kind, Verdict, reason_elsewhere
from rolecall.runner.runs.planned.clock import TaskClock
from rolecall.runner.runs.planned.files import PlanFiles
from rolecall.runner.runs.planned.journal import RUN_COMMANDS_VARIABLE, Journal
from rolecall.runner.runs.planned.tasks import PlanProgress, TaskActions, name_of
from rolecall.runner.runs.planned.unknown_result import PlanEnded

_KUBERNETES = "kubernetes.core.k8s"
_ALLOWED = frozenset(
    {
        *(
            f"ansible.builtin.{name}"
            for name in (
                *("config", "csvfile", "dict", "env", "file", "fileglob", "first_found", "indexed_items", "ini"),
                *("inventory_hostnames", "items", "list", "nested", "password", "random_choice", "sequence"),
                *("subelements", "template", "together", "unvault", "varnames", "vars"),
            )
        ),
        *(f"ansible.utils.{name}" for name in ("get_path", "index_of", "to_paths", "validate")),
        *(
            f"community.general.{name}"
            for name in ("cartesian", "dependent", "flattened", "merge_variables", "random_pet", "random_string")
        ),
        _KUBERNETES,
    }
)

_REASONS = {
    **{f"ansible.builtin.{name}": "runs a program" for name in ("lines", "pipe")},
    "kubernetes.core.kustomize": "runs a program",
    "ansible.builtin.url": "reaches another host",
    "community.general.dig": "reaches another host",
    "": "a lookup of the role",
}
_UNKNOWN = "may run a program or reach another host"

OnWithheld = Callable[[str, Verdict], None]


def install_lookups(name_of: Callable[[str], str], on_withheld: OnWithheld, files: PlanFiles | None) -> None:
    """Check each lookup before it runs, in this process and its workers.

    ``name_of`` gives the full name for the file of a plugin; ``on_withheld`` gets the name and the verdict of a lookup
    that must not run, and ends the plan. Without ``files`` lookups work on the files of this machine.
    """
    find = loader.lookup_loader.get_with_context

    def get_with_context(asked: str, *args: Any, **options: Any) -> Any:
        found = find(asked, *args, **options)
        if found.object is not None and not options.get("class_only"):
            name = name_of(getattr(found.object, "_original_path", ""))
            if name not in _ALLOWED:
                on_withheld(name or asked, Verdict(Kind.WITHHELD, _REASONS.get(name, _UNKNOWN)))
            _guard_instance(found.object, name, on_withheld, files)
        return found

    loader.lookup_loader.get_with_context = get_with_context


def read_from(files: PlanFiles) -> None:
    """Let the controller's side of actions and lookups find the files that the run has written."""
    for name in ("path_dwim_relative", "path_dwim_relative_stack"):
        setattr(DataLoader, name, _reading_absolute(getattr(DataLoader, name), files))
    plain = DataLoader.path_dwim
    DataLoader.path_dwim = lambda self, given: files.readable(plain(self, given))


def _reading_absolute(original: Callable[..., str], files: PlanFiles) -> Callable[..., str]:
    def find(self: DataLoader, where: Any, folder: str, source: Any, *args: Any, **options: Any) -> str:
        path = os.fsdecode(source) if isinstance(source, (str, bytes)) else ""
        if path.startswith("/") and files.readable(path) != path:
            source = files.readable(path)
        return original(self, where, folder, source, *args, **options)

    return find


def _guard_instance(lookup: Any, name: str, on_withheld: OnWithheld, files: PlanFiles | None) -> None:
    """Check or change the terms and options with which a lookup is going to run."""
    run = lookup.run

    def guarded(terms: list[Any], variables: Any = None, **options: Any) -> Any:
        if name == _KUBERNETES and (reason := reason_elsewhere(options, {}, os.environ)):
            on_withheld(name, Verdict(Kind.WITHHELD, reason, is_final=True))
        if name == "ansible.builtin.password" and files:
            terms = [_password_term(term, lookup, files) for term in terms]
        found = run(terms, variables, **options)
        return _with_own(found, terms, files) if name == "ansible.builtin.fileglob" and files else found

    lookup.run = guarded


def _password_term(term: str, lookup: Any, files: PlanFiles) -> str:
    """Return the term with which the lookup keeps its password in the plan's folder."""
    path, *rest = shlex.split(str(term))
    if path == os.devnull:
        return term
    real = lookup._loader.path_dwim(path)  # noqa: SLF001 - no public way
    own = files.inside(real)
    if os.path.exists(real):  # noqa: PTH110 - plain text
        own = files.writable(real)
    return shlex.join([own, *rest])


def _with_own(found: list[str], terms: list[Any], files: PlanFiles) -> list[str]:
    """Return the paths that a real run would find: those of the machine, and of files that the run has written."""
    own = [path for term in terms if str(term).startswith("/") for path in glob.glob(files.inside(str(term)))]  # noqa: PTH207
    return list(dict.fromkeys(files.outward([*found, *sorted(own)])))


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
    install_lookups(name_of, actions.check_lookup, files)
    read_from(files)
    waiting.install_fast_waits()
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
