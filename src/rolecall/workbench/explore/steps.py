"""The steps of a walk through specs: the next edit, and the spec that it starts from. Pure.

**What an edit switches off is on again before the next edit**, because it hides the effects of others: the walk goes
back. It also goes back after an edit with which the role fails. First, each edit is made directly from the first spec,
in order; after it, the walk goes back if the edit is the first one of its field or switches something on, and otherwise
the object is reset. Then each edit is made again from where the walk is: first those that switch on an option, because
they uncover the effects of others, then the rest in a random order.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rolecall.workbench.explore.edits import Edit, Spec, field_of, switches_off

_SHARE_OF_RETURNS: Final = 0.25
_REMEMBERED: Final = 6


@dataclass(frozen=True, slots=True)
class Step:
    """The next spec; ``edit`` is None if the walk goes back. With ``resets``, the object is reset to S0 before it."""

    wanted: Spec
    edit: Edit | None = None
    resets: bool = False


@dataclass(slots=True)
class Steps:
    """The steps from the first spec, ``start``; ``record`` the outcome of each one before the next one."""

    start: Spec
    edits: Sequence[Edit]
    dice: random.Random
    current: Spec = field(init=False)
    _direct: list[Edit] = field(init=False)
    """The edits to make from the first spec, the next one last."""

    _further: list[Edit] = field(init=False)
    """Those to make after that."""

    _shuffled: int = field(init=False)
    """How many of these, the last ones, have a random order."""

    _kept: list[Spec] = field(default_factory=list)
    """Specs to which the walk may return: nothing is switched off in them."""

    _back: Spec | None = None
    _resets: bool = False
    _is_direct: bool = False
    _fields: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Order the edits."""
        self.current = self.start
        self._direct = list(self.edits)[::-1]
        adding = [each for each in self.edits if self._switches_on(each)]
        others = [each for each in self.edits if not self._switches_on(each)]
        self._shuffled = len(others)
        self._further = [*adding, *self.dice.sample(others, len(others))][::-1]

    def _switches_on(self, edit: Edit) -> bool:
        return edit.kind in ("boolean", "absent") and switches_off(edit.apply(self.start), self.start)

    def next(self) -> Step | None:
        """Return the next step; None after the last one."""
        if self._back is not None:
            back, self._back = self._back, None
            return Step(back)
        self._is_direct = bool(self._direct)
        rest = self._direct or self._further
        if not rest:
            return None
        if self._is_direct or self._resets:
            resets, self._resets, self.current = self._resets, False, self.start
            edit = rest.pop()
            return Step(edit.apply(self.start), edit, resets)
        may_return = self.current != self.start and len(self._further) < self._shuffled
        if may_return and self.dice.random() < _SHARE_OF_RETURNS:
            earlier = (self.start, *self._kept[-_REMEMBERED:])
            return Step(self.dice.choice([each for each in earlier if each != self.current]))
        edit = rest.pop()
        return Step(edit.apply(self.current), edit)

    def record(self, step: Step, spec: Spec | None, *, fails: bool = False) -> None:
        """Record the spec that the object has after a step, None if the API server rejects it; or that it ``fails``."""
        before = self.current
        if step.edit is None:
            self._resets = spec is None or fails
            self.current = before if spec is None else spec
        elif spec is not None and spec != before:
            self.current = spec
            name = field_of(step.edit.changes[0].path)
            is_reversed = self._is_direct and (name not in self._fields or switches_off(spec, before))
            self._fields.add(name)
            if fails or switches_off(before, spec) or is_reversed:
                self._back = before
            elif self._is_direct:
                self._resets = True
            else:
                self._kept.append(spec)
