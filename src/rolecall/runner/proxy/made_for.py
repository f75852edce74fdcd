"""The mark by which an object says that a run has created it for its primary: ``rolecall.dev/made-for``.

Prune deletes only what has a mark that names the primary and the object itself, so a copy of an object, or an object
that existed before, has none that counts. The proxy writes a mark only with proof of the creation. If the role prunes,
it does so after the API server has answered a write with 201, and the mark has the object's uid: an object that was
restored has that of its predecessor. If the role doesn't prune yet, a POST has a mark without a uid in its body, which
takes no request; the first complete run of a role that prunes adds the uid. **After that, a mark is only ever lost**:
a PUT repeats the present one, no other write of a run sets one, and a run of another primary that requests the object
by name removes it.

``rolecall.dev/prune`` on an object is the word of its author or user: ``"false"`` keeps it, ``"true"`` permits to
delete an object of a kind that isn't deleted otherwise. No run removes it by leaving it out of a definition.
"""

from collections.abc import Mapping
from typing import Any, Final

from rolecall.kube.metadata import annotation_of, labels_of, metadata_of, uid_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.ownership import ADOPT_ANNOTATION

MADE_FOR_ANNOTATION: Final = "rolecall.dev/made-for"
PRUNE_ANNOTATION: Final = "rolecall.dev/prune"

PRUNED_KINDS: Final = frozenset(
    (group, kind)
    for group, kinds in {
        "": ("ConfigMap", "Service", "ServiceAccount"),
        "apps": ("DaemonSet", "Deployment"),
        "autoscaling": ("HorizontalPodAutoscaler",),
        "batch": ("CronJob",),
        "networking.k8s.io": ("Ingress", "NetworkPolicy"),
        "policy": ("PodDisruptionBudget",),
        "rbac.authorization.k8s.io": ("Role", "RoleBinding"),
        "route.openshift.io": ("Route",),
    }.items()
    for kind in kinds
)
NEVER_PRUNED: Final = frozenset(
    {("", "Namespace"), ("", "PersistentVolumeClaim"), ("apiextensions.k8s.io", "CustomResourceDefinition")}
)

_HELM_LABEL, _HELM = "app.kubernetes.io/managed-by", "Helm"
_HELM_ANNOTATION: Final = "meta.helm.sh/release-name"
_POINTER: Final = f"/metadata/annotations/{MADE_FOR_ANNOTATION.replace('/', '~1')}"


def mark_for(owner_uid: str, group: str, kind: str, key: ObjectKey, uid: str = "") -> str:
    """Return the mark of an object with this uid that a run of the primary with ``owner_uid`` has created."""
    return ":".join(filter(None, (owner_uid, f"{group}/{kind}", f"{key.namespace}/{key.name}", uid)))


def marked_primary(obj: RawObject, group: str) -> str:
    """Return the uid of the primary for which an object of this group was made; empty if its mark doesn't name itself.

    Controllers copy annotations: a ReplicaSet has the mark of its Deployment.
    """
    mark = annotation_of(obj, MADE_FOR_ANNOTATION) or ""
    owner_uid = mark.partition(":")[0]
    own = (mark_for(owner_uid, group, kind_of(obj), ObjectKey.of_object(obj), uid) for uid in ("", uid_of(obj)))
    return owner_uid if mark in own else ""


def has_uid_in_mark(obj: RawObject) -> bool:
    """Return whether the mark of an object has its uid."""
    return bool(uid_of(obj)) and (annotation_of(obj, MADE_FOR_ANNOTATION) or "").endswith(f":{uid_of(obj)}")


def kind_of(obj: RawObject) -> str:
    """Return the kind of an object; items of lists and rows of tables have none, so the one in their mark counts."""
    kind = str(obj.get("kind") or "")
    if kind not in ("", "PartialObjectMetadata"):
        return kind
    named = (annotation_of(obj, MADE_FOR_ANNOTATION) or "").partition(":")[2]
    return named.partition(":")[0].rpartition("/")[2]


def is_helms(obj: RawObject) -> bool:
    """Return whether an object belongs to a Helm release."""
    return labels_of(obj).get(_HELM_LABEL) == _HELM or annotation_of(obj, _HELM_ANNOTATION) is not None


def is_prunable(group: str, kind: str, obj: RawObject) -> bool:
    """Return whether an object of this kind may be deleted by prune, according to its kind and its annotation."""
    word = annotation_of(obj, PRUNE_ANNOTATION)
    is_permitted = word == "true" or ((group, kind) in PRUNED_KINDS and word != "false")
    return is_permitted and (group, kind) not in NEVER_PRUNED


def may_get_mark(group: str, kind: str, obj: RawObject) -> bool:
    """Return whether an object gets a mark when a run creates it: adopted objects and those of Helm get none."""
    return is_prunable(group, kind, obj) and annotation_of(obj, ADOPT_ANNOTATION) is None and not is_helms(obj)


def with_mark(obj: RawObject, mark: str | None) -> RawObject:
    """Return the body of a write with this mark, or with none; the object itself if nothing changes.

    A null, which a merge patch deletes, counts as none.
    """
    given = metadata_of(obj).get("annotations") or {}
    if not isinstance(given, dict) or given.get(MADE_FOR_ANNOTATION) == mark:
        return obj
    changed = {name: value for name, value in given.items() if name != MADE_FOR_ANNOTATION}
    if mark is not None:
        changed[MADE_FOR_ANNOTATION] = mark
    return obj | {"metadata": metadata_of(obj) | {"annotations": changed}}


def without_removed_word(obj: RawObject) -> RawObject:
    """Return the body of a write without the null that removes ``rolecall.dev/prune``.

    A client that compares with the last applied definition sends it, because a user's definition had the annotation.
    """
    annotations = metadata_of(obj).get("annotations")
    if not isinstance(annotations, dict) or annotations.get(PRUNE_ANNOTATION, "") is not None:
        return obj
    kept = {name: value for name, value in annotations.items() if name != PRUNE_ANNOTATION}
    return obj | {"metadata": metadata_of(obj) | {"annotations": kept}}


def without_marks_in(operations: list[Any]) -> list[Any]:
    """Return a JSON patch without operations that set a mark, and with the others in their order."""
    return [_without_mark(each) for each in operations if not _sets_mark(each)]


def _sets_mark(operation: Any) -> bool:
    is_mapping = isinstance(operation, Mapping)
    return is_mapping and operation.get("path") == _POINTER and operation.get("op") not in ("remove", "test")


def _without_mark(operation: Any) -> Any:
    """Return an operation that sets all annotations, or all metadata, without the mark in its value."""
    value = operation.get("value") if isinstance(operation, dict) else None
    if not isinstance(value, dict):
        return operation
    if operation.get("path") == "/metadata/annotations":
        return operation | {"value": with_mark({"metadata": {"annotations": value}}, None)["metadata"]["annotations"]}
    if operation.get("path") == "/metadata":
        return operation | {"value": with_mark({"metadata": value}, None)["metadata"]}
    return operation
