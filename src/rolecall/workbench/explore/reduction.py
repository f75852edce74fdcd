"""The reduction of a walk to the fewest specs that still show a symptom."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from rolecall.workbench.explore.edits import Edit, Spec

Walk = tuple[Spec, ...]
"""The specs that an object gets, one after the other; the first one follows that of the sample."""

Shows = Callable[[Walk], Awaitable[bool]]
MAX_TRIES: Final = 12


async def shortest(
    start: Spec, specs: Walk, edit: Edit | None, shows: Shows, is_over: Callable[[int], bool] = lambda n: n >= MAX_TRIES
) -> Walk:
    """Return a short walk from ``start`` that shows the symptom of the last of ``specs``; empty if it isn't repeatable.

    ``edit`` led to the last spec; it is None if that was an earlier one again. The first try is the edit alone.
    ``is_over`` returns whether that number of tries is enough.
    """
    unique = {repr(each): each for each in candidates(start, specs, edit)}
    for tries, walk in enumerate(unique.values(), 1):
        if await shows(walk):
            return await _reduced(walk, shows, tries, is_over)
        if is_over(tries):
            break
    return ()


def candidates(start: Spec, specs: Walk, edit: Edit | None) -> Iterator[Walk]:
    """Yield walks that may show the symptom of the last of ``specs``, the shortest ones first."""
    last = specs[-1]
    if edit is not None:
        yield (edit.apply(start),)
    if last != start:
        yield (last,)
    for each in reversed(specs[:-1]):
        if each != last:
            yield each, last
            break
    for length in (3, 6, 12, 24, 48, len(specs)):
        yield specs[-length:]


async def _reduced(walk: Walk, shows: Shows, tries: int, is_over: Callable[[int], bool]) -> Walk:
    """Return a walk without each spec that the symptom doesn't need, except for the last one."""
    index = 0
    while index < len(walk) - 1 and not is_over(tries):
        shorter = (*walk[:index], *walk[index + 1 :])
        tries += 1
        if await shows(shorter):
            walk = shorter
        else:
            index += 1
    return walk
