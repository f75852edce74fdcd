"""Predicates: pure functions that decide whether a change triggers a reconcile.

The predicates for primaries follow the Go runner: creation and deletion pass, an update passes only with a new
generation, and the selector is applied to the current labels. The predicate for dependents ignores creation, which the
run itself caused, and updates of only the status. ``triggers`` maps the changes that pass to requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.controller.store import Change, ChangeType

Predicate = Callable[[Change], bool]


def generation_changed(change: Change) -> bool:
    """Return whether an update has a new generation, or, for a kind without generations, a new resourceVersion.

    Creation and deletion always pass.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    if old.generation == new.generation == 0:
        return old.resource_version != new.resource_version
    return old.generation != new.generation


def annotations_changed(change: Change) -> bool:
    """Return whether an update changed an annotation. Creation and deletion always pass."""
    old, new = change.old, change.new
    return old is None or new is None or old.annotations_digest != new.annotations_digest


def dependent_changed(change: Change) -> bool:
    """Return whether a dependent was deleted, or updated in more than its status. Creation never passes."""
    if change.type is ChangeType.ADDED:
        return False
    return change.old is None or change.new is None or change.old.digest != change.new.digest


@dataclass(frozen=True, slots=True)
class PrimaryPredicate:
    """Decides which changes of primaries trigger a reconcile.

    Besides the generation, changes of ``fields`` pass and, with ``watch_annotations``, changes of annotations. The
    selector is applied to the new labels, or to the last known labels of an object that is gone. An object that the
    selector starts to match is treated as new. With ``has_finalizer``, an object that is being deleted passes even if
    the selector no longer matches, because the operator's finalizer still blocks its deletion.
    """

    selector: LabelSelector = field(default_factory=LabelSelector)
    watch_annotations: bool = False
    fields: tuple[FieldPath, ...] = ()
    has_finalizer: bool = False

    def __call__(self, change: Change) -> bool:
        """Return whether the change passes."""
        return self._has_relevant_change(change) and self._is_selected(change)

    def _is_selected(self, change: Change) -> bool:
        return self.selector.matches(change.entry.labels) or (self.has_finalizer and change.entry.is_deleting)

    def _has_relevant_change(self, change: Change) -> bool:
        if generation_changed(change) or change.has_changed(self.fields):
            return True
        if change.old is not None and not self.selector.matches(change.old.labels):
            return True
        return self.watch_annotations and annotations_changed(change)
