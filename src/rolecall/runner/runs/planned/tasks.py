"""What a planned run does with the action of one task: it runs, works in the plan's folder, or is replaced.

Waits of a planned run: the sandbox is ready in about a second, so what is waited for is asked for more often.

Time limits stay as they are: an ``until`` with ten tries and a delay of six seconds may take a minute, in tries of
0.2 seconds. A task that only lets time pass takes next to none.

How far a planned run has come, as the process of ansible-playbook and each of its workers know it.

Workers are forked, so what changes here later stays in the process that changes it; what all have to know is in the
journal.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import ansible
from ansible.errors import AnsiblePromptNoninteractive
from ansible.executor import task_executor
from ansible.plugins import loader

from rolecall.runner.runs.planned.classification import Kind, TaskFacts, Verdict, classify, full_name, is_known
from rolecall.runner.runs.planned.files import KUBERNETES_PATHS, PlanFiles, Redirection, TooLargeError
from rolecall.runner.runs.planned.journal import EndedAt, Journal, WithheldTask
from rolecall.runner.runs.planned.unknown_result import RESULT_KEY, PlanEnded, hide_in_loop

POLL_SECONDS = 0.2
_DEFAULT_RETRIES = 3
_WAITER = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.waiter"
_WAITING_MODULES = frozenset(
    f"kubernetes.core.{name}" for name in ("k8s", "k8s_info", "k8s_json_patch", "k8s_rollback", "k8s_scale")
) | {"community.okd.k8s", "redhat.openshift.k8s"}


class QuickTime:
    """Stands in for the module ``time`` in a module of Ansible: sleeps are short."""

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the module has."""
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep for a moment."""
        time.sleep(min(seconds, POLL_SECONDS))


class _NobodyThere:
    """Stands in for the display of ``pause``: nobody answers."""

    def __init__(self, display: Any) -> None:
        self._display = display

    def __getattr__(self, name: str) -> Any:
        return getattr(self._display, name)

    def prompt_until(self, *_: object, **__: object) -> None:
        raise AnsiblePromptNoninteractive("a planned run asks nobody")


def install_fast_waits() -> None:
    """Shorten the sleeps of this process, its workers and the modules that are forked from them."""
    task_executor.time = QuickTime()
    if waiter := sys.modules.get(_WAITER):
        waiter.time = QuickTime()  # type: ignore[attr-defined]


def hurry_task(task: Any) -> None:
    """Let a task that is about to start try more often, within the time that it would have taken."""
    if task.poll and task.poll > POLL_SECONDS:
        task.poll = POLL_SECONDS
    if task.delay <= POLL_SECONDS or not (task.until or task.retries):
        return
    retries = _DEFAULT_RETRIES if task.retries is None else task.retries
    task.retries = math.ceil(retries * task.delay / POLL_SECONDS)
    task.delay = POLL_SECONDS


def hurry_pause(action: Any) -> None:
    """Let the action ``pause``, which is about to run, neither sleep nor ask anybody: a run has a terminal."""
    module = sys.modules[type(action).__module__]
    module.time = QuickTime()  # type: ignore[attr-defined]
    module.display = _NobodyThere(module.display)  # type: ignore[attr-defined]


def hurried(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which a module waits less: it takes whole seconds."""
    if name in _WAITING_MODULES and (arguments.get("wait") or "wait_sleep" in arguments):
        return {**arguments, "wait_sleep": 1}
    if name != "ansible.builtin.wait_for":
        return dict(arguments)
    only_time = {"timeout": 0} if "path" not in arguments else {}
    return {**arguments, **only_time, "delay": 0}


class PlanProgress:
    """The current task of this process, the tasks that have begun, and the end of the plan."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.ended: EndedAt | None = None
        """Where this process has ended the plan."""
        self.withheld_now: WithheldTask | None = None
        """The current task of this process, if it or an item of its loop was not run."""
        self._task: Any = None
        self._host = ""
        self._begun: set[str] = set()

    def begin(self, host: Any, task: Any) -> None:
        """Note that a task begins."""
        self.withheld_now = None
        self._begun.add(task._uuid)  # noqa: SLF001 - what events call task_uuid
        self.enter(host, task)

    def enter(self, host: Any, task: Any) -> None:
        """Note that a task is looked at, which may not begin."""
        self._task, self._host = task, host.get_name()

    def withhold(self, action: str, verdict: Verdict) -> WithheldTask:
        """Note that the current task, or an action within it, was not run."""
        withheld = self.withheld(action, verdict)
        self.journal.withhold(withheld)
        return withheld

    def skip(self, withheld: WithheldTask) -> None:
        """Note that the current task was not run."""
        self.withheld_now = withheld
        self.journal.withhold(withheld)

    def withheld(self, action: str, verdict: Verdict) -> WithheldTask:
        """Return what to note when the current task has come to the action."""
        ident, name, place = self._place()
        return WithheldTask(ident, name, place, action, verdict.reason, self._host, may_run=not verdict.is_final)

    def end_by_use(self, used: WithheldTask) -> NoReturn:
        """End the plan at the current task, which uses the result of a withheld one. Raises PlanEnded."""
        self.end(used, f"uses the result of {used.task!r}")

    def end(self, used: WithheldTask, how: str) -> NoReturn:
        """End the plan at the current task; see ``EndedAt``. Raises PlanEnded."""
        ident, name, place = self._place()
        self.ended = EndedAt(ident, name, place, len(self._begun | {ident}), used, how)
        self.journal.end(self.ended)
        raise PlanEnded(self.ended.message)

    def _place(self) -> tuple[str, str, str]:
        """Return the id of the current task, its name as events have it, and its place."""
        if self._task is None:
            return "", "the play itself", ""
        return self._task._uuid, str(self._task.name or self._task.action), self._task.get_path() or ""  # noqa: SLF001


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
            hurry_pause(action)
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
        hurry_task(task)
        redirection = self._redirection(connection)
        if kind is Kind.FILES:
            if "validate" in task.args and not self._runs_commands:
                self._progress.withhold(f"{name} with validate", Verdict(Kind.WITHHELD, "runs a program"))
                task.args = {key: value for key, value in task.args.items() if key != "validate"}
            task.args = hurried(name, redirection.redirect(name, task.args))
        elif kind is Kind.KUBERNETES:
            task.args = hurried(name, redirection.map(KUBERNETES_PATHS, task.args))
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
