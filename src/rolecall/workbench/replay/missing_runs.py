"""Why the role of today's project doesn't run for the object of a record."""

from collections.abc import Iterator

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import has_finalizer, is_being_deleted, labels_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.context import PAUSED_ANNOTATION, is_paused
from rolecall.runner.reconcile.reconciler import period_seconds
from rolecall.workbench.project.stale_files import other_scope


def reasons(obj: RawObject, watch: Watch, *, is_namespaced: bool) -> Iterator[str]:
    """Yield why the operator would start no run for an object; nothing if the object permits one."""
    kind, finalizer = watch.gvk.kind, watch.finalizer
    if text := other_scope(ObjectKey.of_object(obj), kind, is_namespaced=is_namespaced):
        yield text
    if not watch.selector.matches(labels_of(obj)):
        found = ", ".join(f"{name}={value}" for name, value in sorted(labels_of(obj).items())) or "none"
        yield f"its labels ({found}) don't match the selector {watch.selector.text} in watches.yaml"
    is_deleted = is_being_deleted(obj)
    if is_paused(obj) and not is_deleted:
        yield f"it is paused by the annotation {PAUSED_ANNOTATION}"
    if is_deleted and finalizer is None:
        yield f"it is being deleted, and {kind} has no finalizer in watches.yaml"
    elif is_deleted and finalizer and not has_finalizer(obj, finalizer.name):
        yield f"it is being deleted, and lacks the finalizer {finalizer.name} of watches.yaml"
    try:
        period_seconds(obj, watch, 0.0)
    except ValueError as error:
        yield f"the annotation with its reconcile period is invalid: {error}"


async def rejection(client: Client, watch: Watch, key: ObjectKey) -> str:
    """Return why an API server rejects a change of an object like the operator's, an empty string if it accepts it."""
    metadata = {"finalizers": [watch.finalizer.name]} if watch.finalizer else {"annotations": {PAUSED_ANNOTATION: None}}
    try:
        await client.patch(watch.gvk, key, {"metadata": metadata})
    except KubeError as error:
        return str(error)
    return ""
