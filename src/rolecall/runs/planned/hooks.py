"""The functions of ansible-core that a planned run changes, and what stands in for an action that is withheld."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import ansible
from ansible.errors import AnsibleError
from ansible.executor import task_executor
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.plugins import strategy
from ansible.utils.display import Display

from rolecall.runs.planned import lookups, unknown_result, waiting
from rolecall.runs.planned.classification import Kind, TaskFacts, Verdict, classify, full_name
from rolecall.runs.planned.file_arguments import KUBERNETES_PATHS, Redirection
from rolecall.runs.planned.journal import RUN_COMMANDS_VARIABLE, EndedAt, Journal, WithheldTask
from rolecall.runs.planned.plan_files import PlanFiles, TooLargeError
from rolecall.runs.planned.unknown_result import RESULT_KEY, PlanEnded

_ANSIBLE = os.path.dirname(os.path.abspath(ansible.__file__))  # noqa: PTH100, PTH120 - plain text
_LOCAL = "ansible.plugins.connection.local"
_GET_ACTION = "_get_action_handler_with_module_context"
_PRIVATE_DIRECTORIES = {"ANSIBLE_ASYNC_DIR": "async", "ANSIBLE_REMOTE_TEMP": "tmp"}
"""What Ansible itself would write into the home directory."""


class WithheldAction:
    """Stands in for an action plugin: notes that it was not run, and says so in its result."""

    def __init__(self, task: WithheldTask, note: Callable[[WithheldTask], None]) -> None:
        self._task = task
        self._note = note

    def run(self, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:  # noqa: ARG002 - as Ansible calls it
        """Return a result that is skipped, so that no ``changed_when`` or ``failed_when`` of the task looks at it."""
        self._note(self._task)
        reason = f"A plan does not run {self._task.action}: {self._task.reason}"
        return {"changed": False, "skipped": True, "skip_reason": reason, RESULT_KEY: asdict(self._task)}

    def cleanup(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - as Ansible calls it
        """Do nothing: nothing has been begun."""


class PlannedPlaybook:
    """A planned run, as the process of ansible-playbook and each of its workers know it.

    Workers are forked, so what changes here later stays in the process that changes it.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._runs_commands = environment.get(RUN_COMMANDS_VARIABLE) == "1"
        self._files = PlanFiles(folder)
        self._journal = Journal(folder)
        self._task: Any = None
        self._host = ""
        self._started: set[str] = set()
        self._ended: EndedAt | None = None

    def install(self) -> None:
        """Change ansible-core in this process. Raises OSError if the plan's folder cannot be written."""
        for name, folder in _PRIVATE_DIRECTORIES.items():
            os.environ[name] = str(self._folder / folder)
        executor = task_executor.TaskExecutor
        executor.run = self._around_run(executor.run)
        setattr(executor, _GET_ACTION, self._around_get_action(getattr(executor, _GET_ACTION)))
        base = strategy.StrategyBase
        base._queue_task = self._around_queue(base._queue_task)  # noqa: SLF001 - there is no public way
        base._execute_meta = self._around_meta(base._execute_meta)  # noqa: SLF001 - as above
        base._process_pending_results = self._around_results(base._process_pending_results)  # noqa: SLF001 - as above
        TaskQueueManager.run = self._around_play(TaskQueueManager.run)
        unknown_result.install(self._end)
        lookups.install(_name_of, self._withhold_lookup, self._files)
        lookups.read_from(self._files)
        waiting.install()
        self._journal.start()

    def _around_run(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(executor: Any) -> Any:
            self._begin(executor._host, executor._task)  # noqa: SLF001 - the patch
            try:
                result = original(executor)
            except PlanEnded:
                result = None
            if self._ended is None:
                return result
            executor._task.ignore_errors = False  # noqa: SLF001 - the patch
            return _failure(self._ended.message)

        return run

    def _around_get_action(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_action(executor: Any, templar: Any) -> Any:
            task, connection = executor._task, executor._connection  # noqa: SLF001 - the patch
            name = _action_name(executor)
            verdict = self._verdict(name, task, connection)
            if verdict.kind is Kind.WITHHELD:
                return self._stand_in(name, task, verdict), None
            try:
                self._prepare(name, task, connection, verdict.kind)
            except TooLargeError as error:
                return self._stand_in(name, task, Verdict(Kind.WITHHELD, str(error))), None
            action, module = original(executor, templar)
            if verdict.kind is not Kind.COMPUTES:
                self._map_result(action, name, task)
            elif name == "ansible.builtin.pause":
                waiting.hurry_action(action)
            return action, module

        return get_action

    def _around_queue(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def queue(base: Any, host: Any, task: Any, task_vars: Any, play_context: Any) -> Any:
            if self._journal.has_ended:
                return None
            self._begin(host, task)
            return original(base, host, task, task_vars, play_context)

        return queue

    def _around_meta(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(base: Any, task: Any, play_context: Any, iterator: Any, target_host: Any) -> Any:
            before = self._task, self._host
            self._task, self._host = task, target_host.get_name()
            found = original(base, task, play_context, iterator, target_host)
            self._task, self._host = before
            return found

        return execute

    def _around_results(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def process(base: Any, *args: Any, **options: Any) -> Any:
            results = original(base, *args, **options)
            if results and self._journal.has_ended:
                base._tqm.terminate()  # noqa: SLF001 - nothing is started any more: no rescue, no always, no handler
            return results

        return process

    def _around_play(self, original: Callable[..., int]) -> Callable[..., int]:
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

    def _begin(self, host: Any, task: Any) -> None:
        self._task, self._host = task, host.get_name()
        self._started.add(task._uuid)  # noqa: SLF001 - what events call task_uuid

    def _verdict(self, name: str, task: Any, connection: Any) -> Verdict:
        """Return what to do with a task whose arguments are known."""
        own = self._environment | {key: os.environ.get(key, "") for key in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")}
        facts = TaskFacts(
            name=name,
            arguments=task.args,
            environment=_environment_of(task),
            is_local=type(connection).__module__ == _LOCAL,
            becomes=connection.become is not None,
        )
        verdict = classify(facts, own)
        if verdict.kind is Kind.WITHHELD and self._runs_commands and not verdict.is_final:
            return Verdict(Kind.COMPUTES)
        return verdict

    def _prepare(self, name: str, task: Any, connection: Any, kind: Kind) -> None:
        """Change the arguments of a task that is about to run. Raises TooLargeError and OSError."""
        waiting.hurry_task(task)
        redirection = self._redirection(connection)
        if kind is Kind.FILES:
            task.args = waiting.hurried(name, redirection.redirect(name, task.args))
        elif kind is Kind.KUBERNETES:
            task.args = waiting.hurried(name, redirection.map(KUBERNETES_PATHS, task.args))

    def _redirection(self, connection: Any) -> Redirection:
        return Redirection(self._files, os.fsdecode(connection.cwd or os.getcwd()))  # noqa: PTH109 - as it is

    def _map_result(self, action: Any, name: str, task: Any) -> None:
        """Let an action return the paths of a real run, and note what it has removed."""
        run, removed = action.run, self._redirection(action._connection).removed_by(name, task.args)  # noqa: SLF001

        def mapped(*args: Any, **options: Any) -> Any:
            result = run(*args, **options)
            if removed and not result.get("failed"):
                self._files.hide(self._files.outward(removed))
            return self._files.outward(result)

        action.run = mapped

    def _stand_in(self, name: str, task: Any, verdict: Verdict) -> WithheldAction:
        """Return what takes the place of a withheld action; end the plan if a handler depends on what it gives."""
        withheld = self._withheld(task, name or task.action, verdict.reason)
        task.until, task.retries, task.async_val = [], 0, 0
        if task.notify and task.changed_when != [False]:
            self._journal.withhold(withheld)
            self._end(withheld)
        return WithheldAction(withheld, self._journal.withhold)

    def _withheld(self, task: Any, action: str, reason: str) -> WithheldTask:
        return WithheldTask(*_place(task), action, reason, self._host)

    def _withhold_lookup(self, name: str, reason: str) -> None:
        """End the plan because of a lookup; it has no result that could be left alone."""
        if self._runs_commands:
            return
        withheld = self._withheld(self._task, f"the lookup {name}", reason)
        self._journal.withhold(withheld)
        self._end(withheld)

    def _end(self, used: WithheldTask) -> NoReturn:
        """End the plan at the current task. Raises PlanEnded."""
        ident, *place = _place(self._task)
        self._ended = EndedAt(ident, *place, len(self._started | {ident}), used)
        self._journal.end(self._ended)
        raise PlanEnded(self._ended.message)


def _place(task: Any) -> tuple[str, str, str]:
    """Return the id of a task, its name as events have it, and its place; before the first task they are empty."""
    if task is None:
        return "", "the play itself", ""
    return task._uuid, str(task.name or task.action), task.get_path() or ""  # noqa: SLF001 - what events call task_uuid


def _name_of(path: str) -> str:
    return full_name(path, _ANSIBLE)


def _action_name(executor: Any) -> str:
    """Return the full name of what a task runs; empty if a role, a playbook or a user brings any part of it."""
    task, found = executor._task, executor._shared_loader_obj  # noqa: SLF001 - the patch
    module = found.module_loader.find_plugin_with_context(task.action, collection_list=task.collections)
    names = [module.plugin_resolved_path] if module.resolved else []
    handler = module.action_plugin if module.resolved else task.action
    handler = handler or task.action
    if found.action_loader.has_plugin(handler, collection_list=task.collections):
        action = found.action_loader.find_plugin_with_context(handler, collection_list=task.collections)
        names.append(action.plugin_resolved_path)
    full = [_name_of(name) for name in names]
    return full[0] if full and all(full) else ""


def _environment_of(task: Any) -> dict[str, Any]:
    """Return what a task adds to the environment; it has been evaluated."""
    given = task.environment if isinstance(task.environment, list) else [task.environment]
    return {name: value for each in given if isinstance(each, Mapping) for name, value in each.items()}


def _failure(message: str) -> Any:
    """Return the result of a failed task, as this version of ansible-core makes it."""
    try:
        from ansible._internal._task import UnifiedTaskResult  # noqa: PLC0415 - 2.21 has it
    except ImportError:
        return {"failed": True, "changed": False, "msg": message}
    return UnifiedTaskResult.create_from_action_exception(AnsibleError(message))
