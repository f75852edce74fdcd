"""What an operator remembers at rest: it must not grow with what was (guarantee 8 of docs/concepts/reliability.md).

``remembered`` follows the references of an operator's own objects, whatever their names, so a collection that somebody
adds later is judged too. References on the stacks of tasks don't count: a task at rest waits for the next change.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import Any, Final

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.manager import Manager

_BOUNDED: Final = ("._allowances", "._written", "._last_writes", "._versions")
"""Attributes that may have uids of deleted objects: the latest thousands, or those of the last ten minutes."""


def remembered(manager: Manager, gone: set[ObjectKey | str]) -> list[str]:
    """Return where an operator keeps keys or uids of objects that are gone, as paths of attributes."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("manager", manager)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, ObjectKey | str):
            if value in gone and not (isinstance(value, str) and path.endswith(_BOUNDED)):
                found.add(path)
            continue
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend((f"{path}{name}", each) for name, each in _references(value))
    return sorted(found)


def _references(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value refers to, as far as it belongs to the operator."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield "", key
            yield "", each
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from (("", each) for each in value)
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, partial):
        yield from (("", each) for each in chain([value.func], value.args, value.keywords.values()))
    elif isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from ((f" {name}", cell.cell_contents) for name, cell in cells)
    elif type(value).__module__.startswith("rolecall."):
        slots = chain.from_iterable(getattr(each, "__slots__", ()) for each in type(value).__mro__)
        names = dict.fromkeys((*getattr(value, "__dict__", ()), *slots))
        yield from ((f".{name}", getattr(value, name)) for name in names if hasattr(value, name))
