"""Walks JSON values, for example objects of Kubernetes: their parts at any depth, and copies with other strings.

The values can also be Ansible's own dictionaries and lists, which are filled while they are read: filters of playbooks
pass them. Their ``values()`` is an iterator.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def items_of(value: Any) -> Iterable[Any]:
    """Return the items of a mapping or list, none of another value."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def all_values(value: Any) -> Iterator[Any]:
    """Yield a value, and each value in it at any depth, in their order."""
    unvisited = [value]
    while unvisited:
        each = unvisited.pop()
        yield each
        unvisited.extend(list(items_of(each))[::-1])


def texts_in(value: Any) -> Iterator[str]:
    """Yield each string in a value, except keys."""
    return (each for each in all_values(value) if isinstance(each, str))


def with_texts(value: Any, change: Callable[[str], Any], *, with_keys: bool = False) -> Any:
    """Return a copy of a value with each string in it replaced by that of a function; keys only if requested."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = ((key, with_texts(item, change, with_keys=with_keys)) for key, item in value.items())
        return {change(key) if with_keys else key: item for key, item in changed}
    if isinstance(value, list | tuple):
        return [with_texts(item, change, with_keys=with_keys) for item in value]
    return value
