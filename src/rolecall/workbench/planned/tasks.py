"""What a planned run does with the action of one task: run it, move its files to the plan's directory, or replace it.

``PlanProgress`` knows how far this process has come. Workers are forked from ansible-playbook, so a later change stays
in the process that makes it; the journal has the state that all processes share.

Any use of the variable that a withheld task registers ends the plan. Ansible keeps registered variables in the process
of ansible-playbook, from which its workers are forked; an ``UnknownResult`` replaces the unknown result there.
ansible-core passes every value that a template, condition, loop, or lookup takes from a variable through one function,
which looks up the handling of values of a type in a table; for the type of these objects that is the end of the plan.
Before 2.19 it has no such table: the function is `Templar.template`, which is called with every variable that a
template names, and the environment takes an element of another variable. Python code that takes the variable without a
template calls their methods.

Waits are short: the sandbox is ready in about a second, so tasks poll more often. Time limits stay, unless the plan has
a shorter one: an ``until`` with ten retries and a delay of six seconds may take a minute, in attempts of 0.2 seconds. A
task that only waits takes no time.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import ansible
from ansible import template
from ansible.errors import AnsiblePromptNoninteractive
from ansible.executor import task_executor
from ansible.plugins import loader
from ansible.vars.manager import VariableManager

from rolecall.system.wrapping import wrap
from rolecall.workbench.planned.classification import (
    ActionCategory,
    TaskFacts,
    Verdict,
    classify,
    full_name,
    is_known,
)
from rolecall.workbench.planned.files import KUBERNETES_PATHS, PlanFiles, Redirection, TooLargeError
from rolecall.workbench.planned.journal import MAX_WAIT_VARIABLE, EndedAt, Journal, WithheldTask

try:
    from ansible._internal import _task
    from ansible._internal._templating import _transform
    from ansible.module_utils._internal import _datatag
except ImportError:  # before 2.19
    _task = _transform = _datatag = None


RESULT_KEY = "rolecall_withheld"
"""In the result of a withheld task: the ``WithheldTask`` as a dictionary."""

OnUse = Callable[[WithheldTask], NoReturn]
_ANSIBLE = os.path.dirname(os.path.abspath(ansible.__file__))  # noqa: PTH100, PTH120 - plain text
_LOCAL = "ansible.plugins.connection.local"
_TASK_VARIABLES = ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")
"""Variables that differ from task to task; see ``callback_plugins/task_credentials.py``."""

POLL_SECONDS = 0.2
_DEFAULT_RETRIES = 3
_DEFAULT_TIMEOUT_SECONDS = 120
"""That of ``wait_timeout``."""

_WAITER = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.waiter"
_WAITING_MODULES = frozenset(
    f"kubernetes.core.{name}" for name in ("k8s", "k8s_info", "k8s_json_patch", "k8s_rollback", "k8s_scale")
) | {"community.okd.k8s", "redhat.openshift.k8s"}


class PlanEnded(BaseException):
    """Unwinds any code that uses an unknown result; not an Exception, so that nothing handles it as an error."""


class UnknownResult:
    """Replaces the result of a withheld task."""

    __slots__ = ("_on_use", "_task")

    def __init__(self, task: WithheldTask, on_use: OnUse) -> None:
        self._task = task
        self._on_use = on_use

    def use(self, *_: object) -> NoReturn:
        """End the plan. Raises PlanEnded."""
        self._on_use(self._task)

    __bool__ = __contains__ = __getitem__ = __iter__ = __len__ = __str__ = use

    def __getattr__(self, name: str) -> Any:
        """Raise PlanEnded, except for attributes that Python and ansible-core request of every object."""
        if name.startswith("_"):
            raise AttributeError(name)
        self.use()

    def __repr__(self) -> str:
        """Return the task; the result itself is unknown."""
        return f"<the result of {self._task.task!r}, which was not run>"

    def __deepcopy__(self, _: object) -> "UnknownResult":
        """Return itself: variables are copied without being used."""
        return self


def install_unknown_results(on_use: OnUse) -> None:
    """Let this process register an ``UnknownResult`` for each withheld task, and call ``on_use`` when one is used."""

    def register(original: Any, manager: VariableManager, host: str, facts: Mapping[str, Any]) -> None:
        registered = dict(facts)
        for name, value in facts.items():
            if isinstance(value, Mapping) and (withheld := unknown_if_withheld(value)):
                registered[name] = UnknownResult(withheld, on_use)
        original(manager, host, registered)

    wrap(VariableManager, "set_nonpersistent_facts", register)
    if _transform:
        _transform._type_transform_mapping[UnknownResult] = UnknownResult.use  # noqa: SLF001 - there is no public way
        _datatag._untaggable_types.add(UnknownResult)  # noqa: SLF001 - as ansible-core does for its own types
        return

    def known(value: Any) -> Any:
        return value.use() if isinstance(value, UnknownResult) else value

    def templated(original: Any, templar: Any, variable: Any, *args: Any, **options: Any) -> Any:
        return original(templar, known(variable), *args, **options)

    wrap(template.Templar, "template", templated)
    for name in ("getitem", "getattr"):
        wrap(template.AnsibleEnvironment, name, lambda original, *args: known(original(*args)))


def hide_in_loop(executor: Any, withheld: WithheldTask, on_use: OnUse) -> None:
    """Let the next items of a loop, and its ``break_when``, use the unknown result of an item that was not run.

    The task is ansible-core's copy for an item; the variable that the loop as a whole registers is not changed.
    """
    task = executor._task  # noqa: SLF001 - no public way
    if not task.register or not (task.loop or task.loop_with):
        return
    names = [task.register] if isinstance(task.register, str) else list(task.register)
    unknown = dict.fromkeys(names, UnknownResult(withheld, on_use))
    if hasattr(_task, "UnifiedTaskResult"):
        _task.TaskContext.current().update_task_vars(unknown)
    else:
        executor._job_vars.update(unknown)  # noqa: SLF001 - no public way
    task.register = None


def register_whole_results(withheld_now: Callable[[], WithheldTask | None]) -> None:
    """With ansible-core 2.21: a withheld task has no result to which the expressions of ``register`` could apply."""
    if not hasattr(_task, "UnifiedTaskResult"):
        return

    def finalize_registered_values(original: Callable[[Any], None], result: Any) -> None:
        names = _task.TaskContext.current().get_register_projections() or {}
        if withheld := withheld_now():
            result.registered_values = {name: {RESULT_KEY: asdict(withheld)} for name in names}
        else:
            original(result)

    wrap(_task.UnifiedTaskResult, "finalize_registered_values", finalize_registered_values)


def unknown_if_withheld(result: Mapping[str, Any]) -> WithheldTask | None:
    """Return the withheld task in a result or in one of the results of a loop; None if there is none."""
    items = result.get("results")
    for each in (result, *(items if isinstance(items, list) else ())):
        if isinstance(each, Mapping) and RESULT_KEY in each:
            return WithheldTask(**each[RESULT_KEY])
    return None


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
        """Record that a task starts."""
        self.withheld_now = None
        self._begun.add(task._uuid)  # noqa: SLF001 - what events call task_uuid
        self.enter(host, task)

    def enter(self, host: Any, task: Any) -> None:
        """Record the current task, which might not start."""
        self._task, self._host = task, host.get_name()

    def withhold(self, action: str, verdict: Verdict) -> WithheldTask:
        """Record that the current task, or an action within it, was not run."""
        withheld = self.withheld(action, verdict)
        self.journal.withhold(withheld)
        return withheld

    def skip(self, withheld: WithheldTask) -> None:
        """Record that the current task was not run."""
        self.withheld_now = withheld
        self.journal.withhold(withheld)

    def withheld(self, action: str, verdict: Verdict) -> WithheldTask:
        """Return the record of the current task with an action that was not run."""
        return WithheldTask(*self._position(), action, verdict.reason, self._host, may_run=not verdict.is_final)

    def end_by_use(self, used: WithheldTask) -> NoReturn:
        """End the plan at the current task, which uses the result of a withheld one. Raises PlanEnded."""
        self.end(used, f"uses the result of {used.task!r}")

    def end(self, used: WithheldTask, how: str) -> NoReturn:
        """End the plan at the current task; see ``EndedAt``. Raises PlanEnded."""
        ident, name, place = self._position()
        self.ended = EndedAt(ident, name, place, len(self._begun | {ident}), used, how)
        self.journal.end(self.ended)
        raise PlanEnded(self.ended.message)

    def _position(self) -> tuple[str, str, str]:
        """Return the id of the current task, its name as in events, and its file and line."""
        if self._task is None:
            return "", "the play itself", ""
        return self._task._uuid, str(self._task.name or self._task.action), self._task.get_path() or ""  # noqa: SLF001


class WithheldAction:
    """Replaces an action plugin: records that it was not run, and reports this in its result."""

    def __init__(self, task: WithheldTask, record: Callable[[WithheldTask], None]) -> None:
        self._task = task
        self._record = record

    def run(self, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:  # noqa: ARG002 - as Ansible calls it
        """Return a skipped result, so that no ``changed_when`` or ``failed_when`` of the task uses it."""
        self._record(self._task)
        reason = f"A plan does not run {self._task.action}: {self._task.reason}"
        return {"changed": False, "skipped": True, "skip_reason": reason, RESULT_KEY: asdict(self._task)}

    def cleanup(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - as Ansible calls it
        """Do nothing: nothing was started."""


@dataclass(frozen=True, slots=True)
class TaskActions:
    """Decides about tasks whose arguments and connection are known; ``environment`` is that of the run."""

    progress: PlanProgress
    files: PlanFiles
    environment: Mapping[str, str]
    runs_commands: bool

    def get_action(self, original: Callable[..., tuple[Any, Any]], executor: Any, templar: Any) -> tuple[Any, Any]:
        """Return the action and the module of a task: those that Ansible would find, or a replacement.

        Raises PlanEnded and OSError.
        """
        if hasattr(task_executor, "remove_omit"):
            _complete_arguments(executor, templar)
        task, connection, name = executor._task, executor._connection, _action_name(executor)  # noqa: SLF001 - no public way
        own = {**self.environment, **{key: os.environ.get(key, "") for key in _TASK_VARIABLES}}
        given = task.environment if isinstance(task.environment, list) else [task.environment]
        facts = TaskFacts(
            name=name,
            arguments=task.args,
            environment={key: value for each in given if isinstance(each, Mapping) for key, value in each.items()},
            is_local=type(connection).__module__ == _LOCAL,
            becomes=connection.become is not None,
        )
        verdict = classify(facts, own)
        if verdict.category is ActionCategory.WITHHELD and not self._runs_anyway(verdict):
            return self._withheld_action(name, executor, verdict), None
        try:
            self._prepare(name, task, connection, verdict.category)
        except TooLargeError as error:
            return self._withheld_action(name, executor, Verdict(ActionCategory.WITHHELD, str(error))), None
        action, module = original(executor, templar)
        if verdict.category is not ActionCategory.COMPUTES:
            self._map_result(action, name, task)
        elif name == "ansible.builtin.pause":  # it must neither sleep nor prompt: a run has a terminal
            plugin = sys.modules[type(action).__module__]
            plugin.time = FastClock()  # type: ignore[attr-defined]
            plugin.display = _NonInteractiveDisplay(plugin.display)  # type: ignore[attr-defined]
        return action, module

    def execute_module(
        self, original: Callable[..., Any], action: Any, module_name: str | None = None, *args: Any, **options: Any
    ) -> Any:
        """End the plan if an action starts an unknown module, or one of a role. Raises PlanEnded.

        A role can replace the modules that an action plugin starts, and choose those that gather facts.
        """
        task = action._task  # noqa: SLF001 - as the original does
        requested = module_name or task.action
        module = loader.module_loader.find_plugin_with_context(requested, collection_list=task.collections)
        name = name_of(module.plugin_resolved_path) if module.resolved else ""
        if not (self.runs_commands or is_known(name)):
            used = self.progress.withhold(name or requested, classify(TaskFacts(name), {}))
            self.progress.end(used, f"starts the module {name or requested}")
        return original(action, module_name, *args, **options)

    def check_lookup(self, name: str, verdict: Verdict) -> None:
        """End the plan because of a withheld lookup, unless ``--run-commands`` runs it. Raises PlanEnded."""
        if not self._runs_anyway(verdict):
            self.progress.end(self.progress.withhold(name, verdict), f"uses the lookup {name}")

    def _runs_anyway(self, verdict: Verdict) -> bool:
        return self.runs_commands and not verdict.is_final

    def _prepare(self, name: str, task: Any, connection: Any, category: ActionCategory) -> None:
        """Change the arguments of a task that is about to run. Raises TooLargeError and OSError."""
        shorten_waits(task)
        redirection = self._redirection(connection)
        if category is ActionCategory.FILES:
            if "validate" in task.args and not self.runs_commands:
                self.progress.withhold(f"{name} with validate", Verdict(ActionCategory.WITHHELD, "runs a program"))
                task.args = {key: value for key, value in task.args.items() if key != "validate"}
            task.args = shorten_arguments(name, redirection.redirect(name, task.args))
        elif category is ActionCategory.KUBERNETES:
            task.args = shorten_arguments(name, redirection.map(KUBERNETES_PATHS, task.args))
        elif category is ActionCategory.WITHHELD:
            task.args = self.files.inward(task.args)

    def _redirection(self, connection: Any) -> Redirection:
        directory = getattr(connection, "cwd", None) or os.getcwd()  # noqa: PTH109 - as it is
        return Redirection(self.files, os.fsdecode(directory))

    def _map_result(self, action: Any, name: str, task: Any) -> None:
        """Let an action return the paths of a real run, and hide the file that it has removed."""
        run, removed = action.run, self._redirection(action._connection).removed_by(name, task.args)  # noqa: SLF001

        def mapped(*args: Any, **options: Any) -> Any:
            result = run(*args, **options)
            if removed and not result.get("failed"):
                self.files.hide(self.files.outward(removed))
            return self.files.outward(result)

        action.run = mapped

    def _withheld_action(self, name: str, executor: Any, verdict: Verdict) -> WithheldAction:
        """Return the replacement of a withheld action; end the plan if a handler depends on its result."""
        task = executor._task  # noqa: SLF001 - no public way
        withheld = self.progress.withheld(name or task.action, verdict)
        task.until, task.retries, task.async_val = [], 0, 0
        if task.notify and task.changed_when != [False]:
            self.progress.journal.withhold(withheld)
            handlers = " and ".join(repr(str(each)) for each in task.notify)
            self.progress.end(withheld, f"notifies {handlers} after its action, if that changes something")
        hide_in_loop(executor, withheld, self.progress.end_by_use)
        return WithheldAction(withheld, self.progress.skip)


def name_of(path: str) -> str:
    """Return the full name for the file of a plugin or module; empty if a role, a playbook, or a user brings it."""
    return full_name(path, _ANSIBLE)


def _action_name(executor: Any) -> str:
    """Return the full name of a task's action; empty if a role, a playbook, or a user brings any part of it."""
    task, found = executor._task, executor._shared_loader_obj  # noqa: SLF001 - no public way
    module = found.module_loader.find_plugin_with_context(task.action, collection_list=task.collections)
    paths = [module.plugin_resolved_path] if module.resolved else []
    handler = (module.action_plugin if module.resolved else "") or task.action
    if found.action_loader.has_plugin(handler, collection_list=task.collections):
        action = found.action_loader.find_plugin_with_context(handler, collection_list=task.collections)
        paths.append(action.plugin_resolved_path)
    names = [name_of(path) for path in paths]
    return names[0] if names and all(names) else ""


def _complete_arguments(executor: Any, templar: Any) -> None:
    """Add the defaults of its module to a task, and remove omitted arguments, because the verdict depends on them.

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
    task.module_defaults = []  # otherwise arguments that the plan removes would come back


class FastClock:
    """Replaces the module ``time`` in a module of Ansible: sleeps are short."""

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the module."""
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep for a moment."""
        time.sleep(min(seconds, POLL_SECONDS))


class _NonInteractiveDisplay:
    """Replaces the display of ``pause``: there is no user to respond."""

    def __init__(self, display: Any) -> None:
        self._display = display

    def __getattr__(self, name: str) -> Any:
        return getattr(self._display, name)

    def prompt_until(self, *_: object, **__: object) -> None:
        raise AnsiblePromptNoninteractive("a planned run has no user to ask")


def install_fast_waits() -> None:
    """Shorten the sleeps of this process, its workers, and the modules that are forked from them."""
    task_executor.time = FastClock()
    if waiter := sys.modules.get(_WAITER):
        waiter.time = FastClock()  # type: ignore[attr-defined]


def _max_wait_seconds() -> float:
    return float(os.environ.get(MAX_WAIT_VARIABLE) or math.inf)


def shorten_waits(task: Any) -> None:
    """Let a task that is about to start retry more often, within the time that it would have taken, or may take."""
    if task.poll and task.poll > POLL_SECONDS:
        task.poll = POLL_SECONDS
    if task.delay <= POLL_SECONDS or not (task.until or task.retries):
        return
    retries = _DEFAULT_RETRIES if task.retries is None else task.retries
    task.retries = math.ceil(min(retries * task.delay, _max_wait_seconds()) / POLL_SECONDS)
    task.delay = POLL_SECONDS


def shorten_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which a module waits less; it accepts integer seconds."""
    if name in _WAITING_MODULES and (arguments.get("wait") or "wait_sleep" in arguments):
        limit = _max_wait_seconds()
        timeout = int(arguments.get("wait_timeout") or _DEFAULT_TIMEOUT_SECONDS)
        return {**arguments, "wait_sleep": 1} | ({"wait_timeout": int(limit)} if limit < timeout else {})
    if name != "ansible.builtin.wait_for":
        return dict(arguments)
    only_time = {"timeout": 0} if "path" not in arguments else {}
    return {**arguments, **only_time, "delay": 0}
