"""Lists of the simulated API server: selectors, pages, and lists of earlier versions."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from rolecall.kube.references import RawObject
from rolecall.kube.selectors import field_requirements, label_selector
from tests.simulation.kinds import EVENT, NAMESPACE, NEW_EVENT, POD, SECRET, ServedKind
from tests.simulation.objects import shown
from tests.simulation.requests import (
    PARTIAL,
    PARTIAL_LIST,
    Call,
    RequestError,
    Route,
    accepted,
    bad_request,
    invalid,
    partial,
    version_number,
)
from tests.simulation.storage import Store

_COMMON_FIELDS: Final = ("metadata.name", "metadata.namespace")
_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FIELDS: Final = {
    SECRET: ("type",),
    NAMESPACE: ("status.phase",),
    POD: ("spec.nodeName", "spec.restartPolicy", "status.phase"),
    EVENT: (*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
    NEW_EVENT: (*(f"regarding.{name}" for name in _INVOLVED), "reason", "reportingController", "type"),
}


def read_list(store: Store, call: Call) -> tuple[RawObject, list[RawObject]]:
    """Return the metadata and the stored objects of a list, or of one page of it. Raise RequestError."""
    _check_match(call.query)
    selects = selection(call.kind, call.query, call.route)
    version, last = _version_of_list(store, call.query)
    found = store.objects_at(call.kind.resource, version)
    prefix, only = _scope(call.kind, call.query, call.route)
    keys = sorted(key for key in found if key > last and key.startswith(prefix) and only in ("", key))
    limit = _limit(call.query) or len(keys)
    items: list[RawObject] = []
    metadata: RawObject = {"resourceVersion": str(version)}
    if call.kind.is_custom and accepted(call.accept) != PARTIAL_LIST:
        metadata["continue"] = ""
    for number, key in enumerate(keys, start=1):
        if selects(key, found[key]):
            items.append(found[key])
        if len(items) == limit:
            if number < len(keys):  # even if the selectors select none of the remaining objects
                metadata["continue"] = _continue_token(version, key)
                if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
                    metadata["remainingItemCount"] = len(keys) - number
            break
    return metadata, items


def list_object(call: Call, metadata: RawObject, objects: list[RawObject]) -> RawObject:
    """Return the body of a list, with copies of the objects. Raise RequestError."""
    wanted = accepted(call.accept)
    if wanted == PARTIAL:
        raise RequestError(406, "NotAcceptable", "you requested an object, but the requested object is a list")
    if wanted == PARTIAL_LIST:
        items = [partial(obj) for obj in objects] or None  # as an empty slice of Go
        return {"kind": PARTIAL_LIST, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
    gvk = call.kind.gvk
    items = [shown(call.kind, obj) for obj in objects]
    if not call.kind.is_custom:
        for item in items:
            del item["apiVersion"], item["kind"]
    return {"kind": f"{gvk.kind}List", "apiVersion": gvk.api_version, "metadata": metadata, "items": items}


def _limit(query: Mapping[str, str]) -> int:
    try:
        return int(query.get("limit") or 0)
    except ValueError as error:
        raise bad_request(f"limit: {error}") from error


def check_version_of_get(store: Store, query: Mapping[str, str]) -> None:
    """Raise RequestError if a request for one object requires a version that isn't one, or doesn't exist yet."""
    wanted = query.get("resourceVersion") or "0"
    if not wanted.isdecimal():
        raise RequestError(500, "", f"resourceVersion: Invalid value: {wanted!r}: invalid syntax")
    _check_not_newer(store, int(wanted))


def _check_not_newer(store: Store, version: int) -> None:
    if version > store.version:
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        raise RequestError(504, "Timeout", f"Too large resource version: {version}", details)


def _check_match(query: Mapping[str, str]) -> None:
    wanted, match = query.get("resourceVersion") or "", query.get("resourceVersionMatch") or ""
    if match and (match not in ("Exact", "NotOlderThan") or not wanted or (match, wanted) == ("Exact", "0")):
        raise invalid("meta.k8s.io", "ListOptions", "", [("resourceVersionMatch", f"Forbidden: {match!r}")])


def _version_of_list(store: Store, query: Mapping[str, str]) -> tuple[int, str]:
    """Return the version to list, and the last key of the previous page."""
    wanted, match = query.get("resourceVersion") or "", query.get("resourceVersionMatch") or ""
    if token := query.get("continue"):
        version, last = _read_continue_token(token)
        if 0 <= version < store.compacted:
            raise RequestError(410, "Expired", "The provided continue parameter is too old")
        return (store.version if version < 0 else version), last
    number = version_number(wanted or "0")
    _check_not_newer(store, number)
    if match != "Exact" and (match or not number or not _limit(query)):
        return store.version, ""
    if number < store.compacted:
        raise RequestError(410, "Expired", f"too old resource version: {number}")
    return number, ""


def _scope(kind: ServedKind, query: Mapping[str, str], route: Route) -> tuple[str, str]:
    """Return the prefix of the keys that a list reads, and the only key if it reads one object."""
    name = next((value for field, sign, value in _fields_of(query) if (field, sign) == ("metadata.name", "=")), "")
    prefix = f"{route.namespace}/" if route.namespace else ""
    is_single = name and (prefix or not kind.is_namespaced)
    return prefix, f"{prefix}{name}" if is_single else ""


def _fields_of(query: Mapping[str, str]) -> list[tuple[str, str, str]]:
    try:
        return field_requirements(query.get("fieldSelector", ""))
    except ValueError as error:
        raise bad_request(f"unable to parse the selector: {error}") from error


def selection(kind: ServedKind, query: Mapping[str, str], route: Route) -> Callable[[str, RawObject], bool]:
    """Return the function that selects objects, by their key and content, of a list or watch. Raise RequestError."""
    try:
        labels = label_selector(query.get("labelSelector", ""))
    except ValueError as error:
        raise bad_request(f"unable to parse the selector: {error}") from error
    fields = _fields_of(query)
    known = (*_COMMON_FIELDS[: 2 if kind.is_namespaced else 1], *_FIELDS.get(kind.gvk, ()))
    if unknown := next((field for field, _, _ in fields if field not in known), None):
        raise bad_request(f"field label not supported: {unknown}")
    if route.name:
        fields.append(("metadata.name", "=", route.name))
    prefix = f"{route.namespace}/" if route.namespace else ""

    def selects(key: str, obj: RawObject) -> bool:
        if not key.startswith(prefix) or not labels.matches(obj["metadata"].get("labels") or {}):
            return False
        return all((_field(obj, path) == value) == (operator == "=") for path, operator, value in fields)

    return selects


def _field(obj: RawObject, path: str) -> str:
    found: Any = obj
    for name in (
        path.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent").split(".")
    ):
        found = found.get(name) if isinstance(found, dict) else None
    return "" if found is None else str(found)


def _continue_token(version: int, last: str) -> str:
    """Return the token of the page after a key, of the list of a version; -1 means the newest version."""
    return base64.urlsafe_b64encode(json.dumps([version, last]).encode()).decode().rstrip("=")


def _read_continue_token(token: str) -> tuple[int, str]:
    """Return the version and the last key of a token. Raise RequestError."""
    try:
        version, last = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    return int(version), str(last)
