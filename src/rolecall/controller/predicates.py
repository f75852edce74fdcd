"""Predicates: does this change of an object count? Pure functions of one change, without a memory of their own.

Those for primaries follow the Go runner: an object that appears or is gone counts, an update only with a new
generation, and a selector sees the labels as they are now. Those for dependents leave out creation, which the run
itself caused, and updates of nothing but status. Which request a change leads to is the question of ``triggers``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.controller.field_paths import FieldPath
from rolecall.controller.selectors import LabelSelector
from rolecall.controller.source.changes import Change, ChangeType

Predicate = Callable[[Change], bool]


def generation_changed(change: Change) -> bool:
    """Tell whether an update has a new generation; of a kind that counts none, every new version is taken as one.

    Creation and deletion always count.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    if old.generation == new.generation == 0:
        return old.resource_version != new.resource_version
    return old.generation != new.generation


def annotations_changed(change: Change) -> bool:
    """Tell whether an update changed an annotation. Creation and deletion always count."""
    old, new = change.old, change.new
    return old is None or new is None or old.annotations_digest != new.annotations_digest


def dependent_changed(change: Change) -> bool:
    """Tell whether a change of a dependent counts: deletion does, and an update of more than its status."""
    if change.type is ChangeType.ADDED:
        return False
    return change.old is None or change.new is None or change.old.digest != change.new.digest


@dataclass(frozen=True, slots=True)
class PrimaryPredicate:
    """Which changes of primaries lead to a reconcile.

    Annotations count with ``watch_annotations``; ``fields`` are those that count besides the generation. The selector
    looks at the new object, and at the last one known of an object that is gone; an object that it selects from now
    on counts as a new one. With ``finalizes`` an object on its way out counts although its labels are others by now,
    because its finalizer still holds it.
    """

    selector: LabelSelector = field(default_factory=LabelSelector)
    watch_annotations: bool = False
    fields: tuple[FieldPath, ...] = ()
    finalizes: bool = False

    def __call__(self, change: Change) -> bool:
        """Tell whether the change counts."""
        return self._is_news(change) and self._is_selected(change)

    def _is_selected(self, change: Change) -> bool:
        return self.selector.matches(change.entry.labels) or (self.finalizes and change.entry.deleting)

    def _is_news(self, change: Change) -> bool:
        if generation_changed(change) or change.has_changed(self.fields):
            return True
        if change.old is not None and not self.selector.matches(change.old.labels):
            return True
        return self.watch_annotations and annotations_changed(change)
