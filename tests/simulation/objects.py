"""The rules for objects: their metadata, their fields, and what a request can't change.

Functions return new objects and never change their arguments. ``MalformedError`` is raised for a value of the wrong
type, which the API server can't decode (400); problems are the paths and messages of invalid fields (422).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, Final

from rolecall.kube.references import RawObject
from rolecall.kube.selectors import is_subdomain, qualified_name_problem
from tests.simulation.kinds import CONFIG_MAP, EVENT, LEASE, NAMESPACE, NEW_EVENT, POD, SECRET, Problem, ServedKind
from tests.simulation.storage import copied

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_STRINGS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp")
_TIMES: Final = ("creationTimestamp", "deletionTimestamp")
_NUMBERS: Final = ("generation", "deletionGracePeriodSeconds")
_MAPPINGS: Final = ("labels", "annotations")
_OWNER_STRINGS: Final = ("apiVersion", "kind", "name", "uid")
_OWNER_BOOLEANS: Final = ("controller", "blockOwnerDeletion")
_MAX_ANNOTATIONS_BYTES: Final = 256 << 10
_MAX_GENERATED_PREFIX: Final = 58
_LABEL: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEASE_FIELDS: Final = (
    *("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions"),
    *("strategy", "preferredHolder"),
)
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_OLD_EVENT_FIELDS: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_EVENT_FIELDS: Final = {new: old for old, new in _OLD_EVENT_FIELDS.items()}


class MalformedError(Exception):
    """A value of a type that its field doesn't have."""


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; for Python, True is 1."""
    return one == other and _has_same_types(one, other)


def _has_same_types(one: Any, other: Any) -> bool:
    if one.__class__ is dict:
        return all(_has_same_types(value, other[key]) for key, value in one.items())
    if one.__class__ is list:
        return all(map(_has_same_types, one, other))
    return one.__class__ is other.__class__


def decoded(kind: ServedKind, body: RawObject) -> RawObject:
    """Return the object in a request as the API server reads it, without unknown fields. Raise MalformedError."""
    obj: RawObject = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind}
    obj["metadata"] = _metadata(body.get("metadata"))
    if kind.gvk == NEW_EVENT:
        body = {_NEW_EVENT_FIELDS.get(name, name): value for name, value in body.items()}
        obj["apiVersion"] = EVENT.api_version
    if kind.is_custom:
        obj["kind"] = body["kind"]
    for name in kind.fields:
        value = body.get(name)
        if value is not None:
            obj[name] = copied(value)
    if read := _READERS.get(kind.gvk):
        read(obj)
    return obj


def shown(kind: ServedKind, obj: RawObject) -> RawObject:
    """Return a copy of a stored object in the form of a kind's version."""
    return copied(in_version(kind, obj))  # type: ignore[no-any-return] # the copy of an object


def in_version(kind: ServedKind, obj: RawObject) -> RawObject:
    """Return a stored object in the form of a kind's version; both share their values."""
    if kind.gvk != NEW_EVENT:
        return obj
    fields = {_OLD_EVENT_FIELDS.get(name, name): value for name, value in obj.items()}
    _drop_empty(fields, "reportingController", "reportingInstance")
    return {**fields, "apiVersion": NEW_EVENT.api_version, "kind": NEW_EVENT.kind}


def _check(value: Any, expected: type, path: str) -> None:
    """Raise MalformedError for a value of another type; a missing one has every type."""
    if value is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        raise MalformedError(f"{path}: expected {expected.__name__}, found {type(value).__name__}")


def _strings(value: Any, path: str) -> dict[str, str]:
    """Return a mapping of strings; null is an empty string, as for every Go program."""
    _check(value, dict, path)
    for key, item in (value or {}).items():
        _check(item, str, f"{path}.{key}")
    return {key: item or "" for key, item in (value or {}).items()}


def _metadata(raw: Any) -> RawObject:
    """Return metadata with its known fields only; those that are empty are left out."""
    _check(raw, dict, "metadata")
    raw = raw or {}
    for name in (*_STRINGS, *_TIMES):
        _check(raw.get(name), str, f"metadata.{name}")
    for name in _NUMBERS:
        _check(raw.get(name), int, f"metadata.{name}")
    metadata = {name: raw[name] for name in (*_STRINGS, *_TIMES, *_NUMBERS) if raw.get(name)}
    if raw.get("deletionGracePeriodSeconds") == 0:
        metadata["deletionGracePeriodSeconds"] = 0
    for name in _MAPPINGS:
        if found := _strings(raw.get(name), f"metadata.{name}"):
            metadata[name] = found
    _check(raw.get("finalizers"), list, "metadata.finalizers")
    for item in raw.get("finalizers") or ():
        _check(item, str, "metadata.finalizers")
    if raw.get("finalizers"):
        metadata["finalizers"] = [item or "" for item in raw["finalizers"]]
    _check(raw.get("ownerReferences"), list, "metadata.ownerReferences")
    if raw.get("ownerReferences"):
        references: dict[str, RawObject] = {}
        for item in raw["ownerReferences"]:
            found = _owner_reference(item)
            references.setdefault(json.dumps(found, sort_keys=True), found)
        metadata["ownerReferences"] = list(references.values())
    return metadata


def _owner_reference(raw: Any) -> RawObject:
    _check(raw, dict, "metadata.ownerReferences")
    raw = raw or {}
    for name in _OWNER_STRINGS:
        _check(raw.get(name), str, f"metadata.ownerReferences.{name}")
    for name in _OWNER_BOOLEANS:
        _check(raw.get(name), bool, f"metadata.ownerReferences.{name}")
    optional = {name: raw[name] for name in _OWNER_BOOLEANS if raw.get(name) is not None}
    return {name: raw.get(name) or "" for name in _OWNER_STRINGS} | optional


def _drop_empty(obj: RawObject, *names: str) -> None:
    for name in names:
        if not obj.get(name):
            obj.pop(name, None)


def _read_config_map(obj: RawObject) -> None:
    for name in ("data", "binaryData"):
        if name in obj:
            obj[name] = _strings(obj[name], name)
    _check(obj.get("immutable"), bool, "immutable")
    _check_base64(obj.get("binaryData"), "binaryData")
    _drop_empty(obj, "data", "binaryData")


def _read_secret(obj: RawObject) -> None:
    data = _strings(obj.get("data"), "data")
    _check_base64(data, "data")
    _check(obj.get("type"), str, "type")
    _check(obj.get("immutable"), bool, "immutable")
    for key, value in _strings(obj.pop("stringData", None), "stringData").items():
        data[key] = base64.b64encode(value.encode()).decode()
    obj["data"] = data
    _drop_empty(obj, "data")
    obj["type"] = obj.get("type") or "Opaque"


def _check_base64(values: dict[str, str] | None, path: str) -> None:
    for key, value in (values or {}).items():
        try:
            base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
        except (binascii.Error, ValueError) as error:
            raise MalformedError(f"{path}.{key}: {error}") from error


def _read_namespace(obj: RawObject) -> None:
    for name in ("spec", "status"):
        _check(obj.get(name), dict, name)
    obj["spec"], obj["status"] = obj.get("spec") or {}, obj.get("status") or {}


def _read_pod(obj: RawObject) -> None:
    _read_namespace(obj)
    obj["spec"].setdefault("terminationGracePeriodSeconds", 30)
    obj["status"].setdefault("phase", "Pending")


def _read_lease(obj: RawObject) -> None:
    spec = obj.get("spec")
    _check(spec, dict, "spec")
    for name in ("leaseDurationSeconds", "leaseTransitions"):
        _check((spec or {}).get(name), int, f"spec.{name}")
    for name in ("holderIdentity", "acquireTime", "renewTime"):
        _check((spec or {}).get(name), str, f"spec.{name}")
    known = (name for name in _LEASE_FIELDS if (spec or {}).get(name) is not None)
    obj["spec"] = {name: obj["spec"][name] for name in known}


def _read_event(obj: RawObject) -> None:
    for name in ("involvedObject", "source", "related", "series"):
        _check(obj.get(name), dict, name)
    for name in ("reason", "message", "type", "action", "reportingComponent", "reportingInstance"):
        _check(obj.get(name), str, name)
    _check(obj.get("count"), int, "count")
    _drop_empty(obj, "reason", "message", "type", "action", "count")
    defaults: RawObject = {"involvedObject": {}, "source": {}, "reportingComponent": "", "reportingInstance": ""}
    defaults |= {"firstTimestamp": None, "lastTimestamp": None, "eventTime": None}
    for name, value in defaults.items():
        obj.setdefault(name, value)


_READERS: Final[dict[Any, Callable[[RawObject], None]]] = {
    CONFIG_MAP: _read_config_map,
    SECRET: _read_secret,
    NAMESPACE: _read_namespace,
    POD: _read_pod,
    LEASE: _read_lease,
    EVENT: _read_event,
    NEW_EVENT: _read_event,
}


def name_problem(kind: ServedKind, name: str) -> str:
    """Return why an object of a kind can't have a name, empty if it can."""
    if kind.gvk == NAMESPACE:
        return "" if _DNS_LABEL.fullmatch(name) else "expected a lowercase RFC 1123 label"
    if kind.gvk == EVENT:
        return "" if name not in (".", "..") and not {"/", "%"} & set(name) else "expected a segment of a path"
    return "" if is_subdomain(name) else "expected a lowercase RFC 1123 subdomain"


def metadata_problems(kind: ServedKind, metadata: RawObject) -> list[Problem]:
    """Return the invalid fields of the metadata of a new object."""
    problems = []
    if prefix := metadata.get("generateName"):
        problem = name_problem(kind, prefix[:_MAX_GENERATED_PREFIX].rstrip("-.") or prefix)
        problems += [("metadata.generateName", problem)] if problem else []
    if not metadata.get("name"):
        problems.append(("metadata.name", "Required value: name or generateName is required"))
    elif problem := name_problem(kind, metadata["name"]):
        problems.append(("metadata.name", problem))
    if metadata.get("generation", 0) < 0:
        problems.append(("metadata.generation", "must be greater than or equal to 0"))
    return problems + _common_problems(kind, metadata)


def _is_core(kind: ServedKind) -> bool:
    """Return whether a kind has the older rules for finalizers."""
    return not kind.gvk.group and kind.gvk != EVENT


def _finalizer_problems(kind: ServedKind, finalizers: list[str]) -> list[Problem]:
    problems = []
    for finalizer in finalizers:
        if problem := qualified_name_problem(finalizer):
            problems.append(("metadata.finalizers", problem))
        elif _is_core(kind) and "/" not in finalizer and finalizer not in (ORPHAN, FOREGROUND, "kubernetes"):
            problems.append(("metadata.finalizers", "name is neither a standard finalizer nor fully qualified"))
    if {ORPHAN, FOREGROUND} <= set(finalizers):
        problems.append(("metadata.finalizers", f"{ORPHAN} and {FOREGROUND} cannot be both set"))
    return problems


def _common_problems(kind: ServedKind, metadata: RawObject) -> list[Problem]:
    problems = _finalizer_problems(kind, metadata.get("finalizers") or [])
    for key, value in (metadata.get("labels") or {}).items():
        problem = qualified_name_problem(key) or ("" if _LABEL.fullmatch(value) else f"invalid value {value!r}")
        problems += [("metadata.labels", problem)] if problem else []
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            problems.append(("metadata.annotations", problem))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS_BYTES:
        problems.append(("metadata.annotations", "Too long: may not be more than 262144 bytes"))
    references = metadata.get("ownerReferences") or []
    for number, reference in enumerate(references):
        path = f"metadata.ownerReferences[{number}]"
        problems += [(f"{path}.{name}", "must not be empty") for name in _OWNER_STRINGS if not reference[name]]
        if reference["apiVersion"].count("/") > 1 or reference["apiVersion"].endswith("/"):
            problems.append((f"{path}.apiVersion", "must be <group>/<version> or <version>"))
        if (reference["apiVersion"], reference["kind"]) == ("v1", "Event"):
            problems.append((path, "/v1, Kind=Event is disallowed from being an owner"))
    if sum(bool(reference.get("controller")) for reference in references) > 1:
        problems.append(("metadata.ownerReferences", "Only one reference can have Controller set to true"))
    return problems


def metadata_update_problems(kind: ServedKind, new: RawObject, old: RawObject) -> list[Problem]:
    """Return the invalid fields of the metadata of a changed object."""
    problems = []
    added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if old.get("deletionTimestamp") and added:
        problems.append(("metadata.finalizers", "no new finalizers can be added if the object is being deleted"))
    immutable = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
    problems += [(f"metadata.{name}", "field is immutable") for name in immutable if new.get(name) != old.get(name)]
    return problems + _common_problems(kind, new)


def content_problems(kind: ServedKind, obj: RawObject, old: RawObject | None = None) -> list[Problem]:
    """Return the invalid fields besides the metadata of a new object, or of one that was ``old`` before."""
    if kind.is_custom:
        problems = [("kind", f"must be {kind.gvk.kind}")] if obj["kind"] != kind.gvk.kind else []
        others = [(name, "must be of type object") for name in kind.fields if not isinstance(obj.get(name, {}), dict)]
        return problems + (others or kind.schema(obj))
    match kind.gvk:
        case gvk if gvk in (CONFIG_MAP, SECRET):
            return _data_problems(kind, obj, old)
        case gvk if gvk == LEASE:
            spec = obj["spec"]
            problems = []
            if spec.get("leaseDurationSeconds", 1) <= 0:
                problems.append(("spec.leaseDurationSeconds", "must be greater than 0"))
            if spec.get("leaseTransitions", 0) < 0:
                problems.append(("spec.leaseTransitions", "must be greater than or equal to 0"))
            return problems
        case gvk if gvk in (EVENT, NEW_EVENT):
            namespace = obj["involvedObject"].get("namespace") or "default"
            if namespace != obj["metadata"].get("namespace"):
                return [("involvedObject.namespace", "does not match event.namespace")]
    return []


def _data_problems(kind: ServedKind, obj: RawObject, old: RawObject | None) -> list[Problem]:
    problems = [
        (f"{name}[{key}]", "a valid config key must consist of alphanumeric characters, '-', '_' or '.'")
        for name in ("data", "binaryData")
        for key in obj.get(name) or ()
        if not _KEY.fullmatch(key) or key in (".", "..") or key.startswith("..")
    ]
    shared = (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys()
    problems += [("data", f"duplicate of key present in binaryData: {key}") for key in sorted(shared)]
    if old is None:
        return problems
    if kind.gvk == SECRET and obj["type"] != old["type"]:
        problems.append(("type", "field is immutable"))
    if old.get("immutable"):
        names = ("data", "binaryData")
        if not obj.get("immutable") or any(not is_same(obj.get(name), old.get(name)) for name in names):
            problems.append(("data", "field is immutable when `immutable` is set"))
    return problems
