"""Objects without the fields that the API server, controllers, and the operator maintain for themselves.

These fields are never compared: versions, uids, times, counts.
"""

from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, SECRET, RawObject
from rolecall.runner.proxy.made_for import MADE_FOR_ANNOTATION
from rolecall.runner.record.timeline import without_server_fields
from rolecall.runner.secrets.mask import decode_base64
from rolecall.runner.secrets.values import LAST_APPLIED

_SET_BY_OTHERS: Final = frozenset({LAST_APPLIED, "deployment.kubernetes.io/revision", MADE_FOR_ANNOTATION})
"""Annotations of clients, of controllers, and the operator's mark, which has the uid of the primary."""

_SET_AT_DELETION: Final = "deletionGracePeriodSeconds"
_SET_LATER: Final = {"Pod": "nodeName", "PersistentVolumeClaim": "volumeName"}
"""Fields of a spec that controllers set, after some time."""

_VOLATILE: Final = frozenset({"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "ansibleResult"})


def text_in_base64(text: str) -> str:
    """Return the text that is encoded in another one, empty if there is none."""
    try:
        return (decode_base64(text) or b"").decode()
    except UnicodeDecodeError:
        return ""


def cleaned(obj: RawObject, *, with_status: bool) -> RawObject:
    """Return an object without the fields that the API server, controllers, and the operator maintain."""
    cleaned = without_server_fields(obj)
    metadata = {key: value for key, value in metadata_of(cleaned).items() if key != _SET_AT_DELETION}
    if isinstance(annotations := metadata.pop("annotations", None), dict):
        kept = {name: value for name, value in annotations.items() if name not in _SET_BY_OTHERS}
        metadata |= {"annotations": kept} if kept else {}
    kept = {key: value for key, value in cleaned.items() if key != "status" or with_status} | {"metadata": metadata}
    return {key: kept[key] for key in ("apiVersion", "kind", "metadata") if key in kept} | kept


def compared(gvk: GVK, obj: RawObject, *, with_status: bool) -> RawObject:
    """Return an object as a part of an end state: without noise and times, the values of a Secret decoded."""
    content = cleaned(obj, with_status=with_status)
    if isinstance(status := content.get("status"), dict):
        content["status"] = _without_volatile(status)
    if isinstance(spec := content.get("spec"), dict) and gvk.kind in _SET_LATER:
        content["spec"] = {name: value for name, value in spec.items() if name != _SET_LATER[gvk.kind]}
    if (gvk.group, gvk.kind) == (SECRET.group, SECRET.kind) and isinstance(data := content.get("data"), dict):
        content["data"] = {name: text_in_base64(str(value)) or value for name, value in data.items()}
    return content


def _without_volatile(value: Any) -> Any:
    """Return a part of a status without times and counts; conditions are in the order of their types."""
    if isinstance(value, list):
        return [_without_volatile(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without_volatile(inner) for name, inner in value.items() if name not in _VOLATILE}
    conditions = found.get("conditions")
    if isinstance(conditions, list) and all(isinstance(each, dict) for each in conditions):
        found["conditions"] = sorted(conditions, key=lambda each: str(each.get("type")))
    return found
