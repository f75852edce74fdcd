"""What a planned run does with the action of one task: it runs, works in the plan's folder, or is replaced."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import ansible
from ansible.plugins import loader

from rolecall.runner.runs.planned import waiting
from rolecall.runner.runs.planned.classification import Kind, TaskFacts, Verdict, classify, full_name, is_known
from rolecall.runner.runs.planned.file_arguments import KUBERNETES_PATHS, Redirection
from rolecall.runner.runs.planned.journal import WithheldTask
from rolecall.runner.runs.planned.plan_files import PlanFiles, TooLargeError
from rolecall.runner.runs.planned.plan_progress import PlanProgress
from rolecall.runner.runs.planned.unknown_result import RESULT_KEY, hide_in_loop

_ANSIBLE = os.path.dirname(os.path.abspath(ansible.__file__))  # noqa: PTH100, PTH120 - plain text
_LOCAL = "ansible.plugins.connection.local"
_TASK_VARIABLES = ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")
"""Variables that differ from task to task; see ``callback_plugins/task_credentials.py``."""


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


class TaskActions:
    """Decides about tasks whose arguments and connection are known; ``environment`` is that of the run."""

    def __init__(
        self, progress: PlanProgress, files: PlanFiles, environment: Mapping[str, str], *, runs_commands: bool
    ) -> None:
        self._progress = progress
        self._files = files
        self._environment = environment
        self._runs_commands = runs_commands

    def action_for(self, executor: Any, find: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return the action and the module of a task: those that Ansible would find, or what stands in for them.

        Raises PlanEnded and OSError.
        """
        task, connection, name = executor._task, executor._connection, _action_name(executor)  # noqa: SLF001 - no public way
        verdict = self._verdict(name, task, connection)
        if verdict.kind is Kind.WITHHELD and not self._runs_anyway(verdict):
            return self._stand_in(name, executor, verdict), None
        try:
            self._prepare(name, task, connection, verdict.kind)
        except TooLargeError as error:
            return self._stand_in(name, executor, Verdict(Kind.WITHHELD, str(error))), None
        action, module = find()
        if verdict.kind is not Kind.COMPUTES:
            self._map_result(action, name, task)
        elif name == "ansible.builtin.pause":
            waiting.hurry_pause(action)
        return action, module

    def check_module(self, asked: str, task: Any) -> None:
        """End the plan if an action starts a module of a role, or one that is not known. Raises PlanEnded."""
        module = loader.module_loader.find_plugin_with_context(asked, collection_list=task.collections)
        name = name_of(module.plugin_resolved_path) if module.resolved else ""
        if not (self._runs_commands or is_known(name)):
            used = self._progress.withhold(name or asked, classify(TaskFacts(name), {}))
            self._progress.end(used, f"starts the module {name or asked}")

    def check_lookup(self, name: str, verdict: Verdict) -> None:
        """End the plan because of a lookup that must not run, unless it runs for real. Raises PlanEnded."""
        if not self._runs_anyway(verdict):
            self._progress.end(self._progress.withhold(name, verdict), f"uses the lookup {name}")

    def _runs_anyway(self, verdict: Verdict) -> bool:
        return self._runs_commands and not verdict.is_final

    def _verdict(self, name: str, task: Any, connection: Any) -> Verdict:
        own = {**self._environment, **{key: os.environ.get(key, "") for key in _TASK_VARIABLES}}
        facts = TaskFacts(
            name=name,
            arguments=task.args,
            environment=_environment_of(task),
            is_local=type(connection).__module__ == _LOCAL,
            becomes=connection.become is not None,
        )
        return classify(facts, own)

    def _prepare(self, name: str, task: Any, connection: Any, kind: Kind) -> None:
        """Change the arguments of a task that is about to run. Raises TooLargeError and OSError."""
        waiting.hurry_task(task)
        redirection = self._redirection(connection)
        if kind is Kind.FILES:
            if "validate" in task.args and not self._runs_commands:
                self._progress.withhold(f"{name} with validate", Verdict(Kind.WITHHELD, "runs a program"))
                task.args = {key: value for key, value in task.args.items() if key != "validate"}
            task.args = waiting.hurried(name, redirection.redirect(name, task.args))
        elif kind is Kind.KUBERNETES:
            task.args = waiting.hurried(name, redirection.map(KUBERNETES_PATHS, task.args))
        elif kind is Kind.WITHHELD:
            task.args = self._files.inward(task.args)

    def _redirection(self, connection: Any) -> Redirection:
        directory = getattr(connection, "cwd", None) or os.getcwd()  # noqa: PTH109 - as it is
        return Redirection(self._files, os.fsdecode(directory))

    def _map_result(self, action: Any, name: str, task: Any) -> None:
        """Let an action return the paths of a real run, and note what it has removed."""
        run, removed = action.run, self._redirection(action._connection).removed_by(name, task.args)  # noqa: SLF001

        def mapped(*args: Any, **options: Any) -> Any:
            result = run(*args, **options)
            if removed and not result.get("failed"):
                self._files.hide(self._files.outward(removed))
            return self._files.outward(result)

        action.run = mapped

    def _stand_in(self, name: str, executor: Any, verdict: Verdict) -> WithheldAction:
        """Return what takes the place of a withheld action; end the plan if a handler depends on what it gives."""
        task = executor._task  # noqa: SLF001 - no public way
        withheld = self._progress.withheld(name or task.action, verdict)
        task.until, task.retries, task.async_val = [], 0, 0
        if task.notify and task.changed_when != [False]:
            self._progress.journal.withhold(withheld)
            handlers = " and ".join(repr(str(each)) for each in task.notify)
            self._progress.end(withheld, f"notifies {handlers} after its action, if that changes something")
        hide_in_loop(executor, withheld, self._progress.end_by_use)
        return WithheldAction(withheld, self._progress.skip)


def name_of(path: str) -> str:
    """Return the full name for the file of a plugin or module; empty if a role, a playbook or a user brings it."""
    return full_name(path, _ANSIBLE)


def _action_name(executor: Any) -> str:
    """Return the full name of what a task runs; empty if a role, a playbook or a user brings any part of it."""
    task, found = executor._task, executor._shared_loader_obj  # noqa: SLF001 - no public way
    module = found.module_loader.find_plugin_with_context(task.action, collection_list=task.collections)
    paths = [module.plugin_resolved_path] if module.resolved else []
    handler = (module.action_plugin if module.resolved else "") or task.action
    if found.action_loader.has_plugin(handler, collection_list=task.collections):
        action = found.action_loader.find_plugin_with_context(handler, collection_list=task.collections)
        paths.append(action.plugin_resolved_path)
    names = [name_of(path) for path in paths]
    return names[0] if names and all(names) else ""


def _environment_of(task: Any) -> dict[str, Any]:
    """Return what a task adds to the environment; it has been evaluated."""
    given = task.environment if isinstance(task.environment, list) else [task.environment]
    return {name: value for each in given if isinstance(each, Mapping) for name, value in each.items()}
