"""The variable that a withheld task registers: whoever uses it, in whatever way, ends the plan.

Ansible keeps registered variables in the process of ansible-playbook, from which its workers are forked. The objects
here stand there for results that nobody knows. ansible-core passes every value that a template, condition, loop or
lookup takes from a variable through one function, which asks a table what to make of values of a type; for the type of
these objects that is the end of the plan. Before 2.19 it has no such table: the function is `Templar.template`, which
is called with every variable that a template names, and an element of another variable is taken by the environment.
Python code that takes the variable without a template meets their methods.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from ansible import template
from ansible.vars.manager import VariableManager

try:
    from ansible._internal import _task
    from ansible._internal._templating import _transform
    from ansible.module_utils._internal import _datatag
except ImportError:  # before 2.19
    _task = _transform = _datatag = None

from rolecall.runner.runs.planned.journal import WithheldTask

RESULT_KEY = "rolecall_withheld"
"""In the result of a withheld task: the ``WithheldTask`` as a dictionary."""

OnUse = Callable[[WithheldTask], NoReturn]


class PlanEnded(BaseException):
    """Unwinds whatever uses a result that nobody knows; no error, so that nothing takes it for one."""


class UnknownResult:
    """Stands for the result of a withheld task."""

    __slots__ = ("_on_use", "_task")

    def __init__(self, task: WithheldTask, on_use: OnUse) -> None:
        self._task = task
        self._on_use = on_use

    def use(self, *_: object) -> NoReturn:
        """End the plan. Raises PlanEnded."""
        self._on_use(self._task)

    __bool__ = __contains__ = __getitem__ = __iter__ = __len__ = __str__ = use

    def __getattr__(self, name: str) -> Any:
        """Raise PlanEnded, except for what Python and ansible-core itself ask of every object."""
        if name.startswith("_"):
            raise AttributeError(name)
        self.use()

    def __repr__(self) -> str:
        """Return what it stands for; never what it is worth."""
        return f"<the result of {self._task.task!r}, which was not run>"

    def __deepcopy__(self, _: object) -> "UnknownResult":
        """Return itself: variables are copied without being used."""
        return self


def install(on_use: OnUse) -> None:
    """Let this process register an ``UnknownResult`` for each withheld task, and call ``on_use`` when one is used."""
    if _transform:
        _transform._type_transform_mapping[UnknownResult] = UnknownResult.use  # noqa: SLF001 - there is no public way
        _datatag._untaggable_types.add(UnknownResult)  # noqa: SLF001 - as ansible-core does for its own types
    else:
        template.Templar.template = _checked_argument(template.Templar.template)
        for name in ("getitem", "getattr"):
            setattr(template.AnsibleEnvironment, name, _checked_value(getattr(template.AnsibleEnvironment, name)))
    register = VariableManager.set_nonpersistent_facts

    def set_nonpersistent_facts(manager: VariableManager, host: str, facts: Any) -> None:
        register(manager, host, {name: _stand_in(value, on_use) for name, value in facts.items()})

    VariableManager.set_nonpersistent_facts = set_nonpersistent_facts


def _checked_argument(original: Callable[..., Any]) -> Callable[..., Any]:
    def templated(templar: Any, variable: Any, *args: Any, **options: Any) -> Any:
        return original(templar, _known(variable), *args, **options)

    return templated


def _checked_value(original: Callable[..., Any]) -> Callable[..., Any]:
    def get(environment: Any, owner: Any, name: Any) -> Any:
        return _known(original(environment, owner, name))

    return get


def _known(value: Any) -> Any:
    """Return a value that is known. Raises PlanEnded if it is not."""
    return value.use() if isinstance(value, UnknownResult) else value


def hide_in_loop(executor: Any, withheld: WithheldTask, on_use: OnUse) -> None:
    """Let the next items of a loop, and its ``break_when``, meet the unknown result of an item that was not run.

    The task is the copy that ansible-core makes for an item; what the loop as a whole registers is not changed.
    """
    task = executor._task  # noqa: SLF001 - no public way
    if not task.register or not (task.loop or task.loop_with):
        return
    names = [task.register] if isinstance(task.register, str) else list(task.register)
    unknown = dict.fromkeys(names, UnknownResult(withheld, on_use))
    if _registers_expressions():
        _task.TaskContext.current().update_task_vars(unknown)
    else:
        executor._job_vars.update(unknown)  # noqa: SLF001 - no public way
    task.register = None


def register_whole_results(withheld_now: Callable[[], WithheldTask | None]) -> None:
    """With ansible-core 2.21: a withheld task has no result on which the expressions of ``register`` could work."""
    if not _registers_expressions():
        return
    finalize = _task.UnifiedTaskResult.finalize_registered_values

    def finalize_registered_values(result: Any) -> None:
        names = _task.TaskContext.current().get_register_projections() or {}
        if withheld := withheld_now():
            result.registered_values = {name: {RESULT_KEY: asdict(withheld)} for name in names}
        else:
            finalize(result)

    _task.UnifiedTaskResult.finalize_registered_values = finalize_registered_values


def _registers_expressions() -> bool:
    return hasattr(_task, "UnifiedTaskResult")


def unknown_if_withheld(result: Mapping[str, Any]) -> WithheldTask | None:
    """Return what was withheld, in a result or in one of the results of a loop; None if nothing was."""
    items = result.get("results")
    for each in (result, *(items if isinstance(items, list) else ())):
        if isinstance(each, Mapping) and RESULT_KEY in each:
            return WithheldTask(**each[RESULT_KEY])
    return None


def _stand_in(value: Any, on_use: OnUse) -> Any:
    withheld = unknown_if_withheld(value) if isinstance(value, Mapping) else None
    return UnknownResult(withheld, on_use) if withheld else value
