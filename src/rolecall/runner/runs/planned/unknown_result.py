"""The variable that a withheld task registers: any use of it ends the plan.

Ansible keeps registered variables in the process of ansible-playbook, from which its workers are forked. The objects
here replace unknown results there. ansible-core passes every value that a template, condition, loop, or lookup takes
from a variable through one function, which looks up the handling of values of a type in a table; for the type of these
objects that is the end of the plan. Before 2.19 it has no such table: the function is `Templar.template`, which is
called with every variable that a template names, and the environment takes an element of another variable. Python code
that takes the variable without a template calls their methods.
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


def wrap_method(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method of a class by a function that receives the original method first."""
    original = getattr(owner, name)

    def method(*args: Any, **options: Any) -> Any:
        return wrapper(original, *args, **options)

    setattr(owner, name, method)


def install(on_use: OnUse) -> None:
    """Let this process register an ``UnknownResult`` for each withheld task, and call ``on_use`` when one is used."""

    def register(original: Any, manager: VariableManager, host: str, facts: Mapping[str, Any]) -> None:
        registered = dict(facts)
        for name, value in facts.items():
            if isinstance(value, Mapping) and (withheld := unknown_if_withheld(value)):
                registered[name] = UnknownResult(withheld, on_use)
        original(manager, host, registered)

    wrap_method(VariableManager, "set_nonpersistent_facts", register)
    if _transform:
        _transform._type_transform_mapping[UnknownResult] = UnknownResult.use  # noqa: SLF001 - there is no public way
        _datatag._untaggable_types.add(UnknownResult)  # noqa: SLF001 - as ansible-core does for its own types
        return

    def known(value: Any) -> Any:
        return value.use() if isinstance(value, UnknownResult) else value

    def templated(original: Any, templar: Any, variable: Any, *args: Any, **options: Any) -> Any:
        return original(templar, known(variable), *args, **options)

    wrap_method(template.Templar, "template", templated)
    for name in ("getitem", "getattr"):
        wrap_method(template.AnsibleEnvironment, name, lambda original, *args: known(original(*args)))


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

    wrap_method(_task.UnifiedTaskResult, "finalize_registered_values", finalize_registered_values)


def unknown_if_withheld(result: Mapping[str, Any]) -> WithheldTask | None:
    """Return the withheld task in a result or in one of the results of a loop; None if there is none."""
    items = result.get("results")
    for each in (result, *(items if isinstance(items, list) else ())):
        if isinstance(each, Mapping) and RESULT_KEY in each:
            return WithheldTask(**each[RESULT_KEY])
    return None
