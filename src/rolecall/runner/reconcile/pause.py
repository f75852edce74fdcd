"""The annotations by which the user of a primary says when its role runs.

``rolecall.dev/paused: "true"`` keeps runs from starting for as long as it is set. ``rolecall.dev/reconcile-at`` starts
a run whenever its value changes, whatever the value is. A change of either reconciles at once.
"""

from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import RawObject

PAUSED_ANNOTATION = "rolecall.dev/paused"
RECONCILE_AT_ANNOTATION = "rolecall.dev/reconcile-at"


def is_paused(obj: RawObject) -> bool:
    """Return whether runs are paused; any value but the text ``true`` means that they are not."""
    return annotation_of(obj, PAUSED_ANNOTATION) == "true"
