"""What the annotations of a primary say about when its role runs.

``rolecall.dev/paused: "true"`` keeps runs from starting until it goes; ``rolecall.dev/reconcile-at`` starts one
whenever its value changes, whatever it says. Both reconcile as soon as they change.
"""

from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import RawObject

PAUSED_ANNOTATION = "rolecall.dev/paused"
RECONCILE_AT_ANNOTATION = "rolecall.dev/reconcile-at"


def is_paused(obj: RawObject) -> bool:
    """Tell whether somebody has asked for no runs; any value but the text ``true`` asks for nothing."""
    return annotation_of(obj, PAUSED_ANNOTATION) == "true"
