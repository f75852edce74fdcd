"""Finds the secret values in the decoded bodies of requests and answers, and masks them where they stand.

Secret are: what is in the data of a Secret and in its annotations; tokens that the API server gives or is asked about;
and every text in the bodies of a task with ``no_log``, apart from what identifies objects. Masking in place covers
short values too; the text of the whole record is masked afterwards, by ``Mask.apply``.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from rolecall.proxy.request_info import RequestInfo
from rolecall.record.masking import MIN_ANYWHERE, Mask

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KNOWN_DOMAINS: Final = ("kubernetes.io", "k8s.io", "helm.sh", "operator-sdk")
_TOKENS: Final = {"TokenRequest": ("status", "token"), "TokenReview": ("spec", "token")}
_WORDS: Final = (b"Secret", *(kind.encode() for kind in _TOKENS))
_SECRET_PATHS: Final = ("/data", "/stringData", "/metadata/annotations")
IDENTIFYING: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "labels",
        "managedFields",
        "matchLabels",
        "name",
        "namespace",
        "op",
        "ownerReferences",
        "path",
        "phase",
        "protocol",
        "resourceVersion",
        "selector",
        "type",
        "uid",
    }
)
"""What a task with ``no_log`` does not hide: without it nobody could tell what its requests were."""


def is_about_secrets(info: RequestInfo) -> bool:
    """Return whether a request is for Secrets."""
    return (info.group, info.resource) == ("", "secrets")


def may_have_secrets(body: bytes, info: RequestInfo) -> bool:
    """Return whether a body has to be searched; most have not, and the search takes longer than this look."""
    return is_about_secrets(info) or any(word in body for word in _WORDS)


def mask_body(mask: Mask, body: Any, info: RequestInfo, *, is_hidden: bool) -> Any:
    """Return a decoded body with its secret values masked; ``is_hidden`` for a body of a task with ``no_log``."""
    body = _mask(mask, body, is_secret=is_about_secrets(info))
    return _mask_texts(mask, body) if is_hidden and info.is_resource else body


def _mask(mask: Mask, value: Any, *, is_secret: bool) -> Any:
    """Mask the Secrets in a value; with ``is_secret`` the value is one itself, a list of them, or a patch of one."""
    if isinstance(value, list):
        if is_secret and any(isinstance(each, dict) and "op" in each for each in value):
            return [_mask_operation(mask, operation) for operation in value]
        return [_mask(mask, each, is_secret=is_secret) for each in value]
    if not isinstance(value, dict):
        return value
    value = {key: _mask(mask, inner, is_secret=is_secret and key in _CONTAINERS) for key, inner in value.items()}
    if value.get("kind") in _TOKENS:
        return _mask_token(mask, value)
    if value.get("kind") == "Secret" or (is_secret and not value.keys() & _CONTAINERS):
        return _mask_secret(mask, value)
    return value


_CONTAINERS: Final = frozenset({"items", "object", "rows"})
"""The keys below which lists, watch events and tables have their objects."""


def _mask_secret(mask: Mask, secret: RawObject) -> RawObject:
    changed = dict(secret)
    if isinstance(data := secret.get("data"), dict):
        namespace = metadata_of(secret).get("namespace")
        own = {key: value for key, value in data.items() if key == "namespace" and namespace}
        changed["data"] = {**_map_texts(data, mask.add_base64), **own}
    if isinstance(texts := secret.get("stringData"), dict):
        changed["stringData"] = _map_texts(texts, mask.add)
    if isinstance(annotations := metadata_of(secret).get("annotations"), dict):
        masked = {name: _mask_annotation(mask, name, value) for name, value in annotations.items()}
        changed["metadata"] = metadata_of(secret) | {"annotations": masked}
    return changed


def _mask_annotation(mask: Mask, name: str, value: Any) -> Any:
    if name == LAST_APPLIED and isinstance(value, str):
        try:
            applied = _mask(mask, json.loads(value), is_secret=True)
        except (ValueError, RecursionError):
            return mask.add(value)
        return json.dumps(applied, ensure_ascii=False, separators=(",", ":"))
    domain = name.partition("/")[0]
    is_known = "/" in name and domain.endswith(_KNOWN_DOMAINS)
    return value if is_known or not isinstance(value, str) else mask.add(value)


def _mask_operation(mask: Mask, operation: Any) -> Any:
    """Mask one operation of a JSON patch of a Secret."""
    if not isinstance(operation, dict) or "value" not in operation:
        return operation
    path, value = str(operation.get("path", "")), operation["value"]
    if path.startswith(_SECRET_PATHS):
        add = mask.add_base64 if path.startswith("/data") else mask.add
        return operation | {"value": _map_texts(value, add)}
    return operation | {"value": _mask(mask, value, is_secret=path in ("", "/"))}


def _mask_token(mask: Mask, review: RawObject) -> RawObject:
    part, name = _TOKENS[review["kind"]]
    found = review.get(part)
    if not isinstance(found, dict) or not isinstance(found.get(name), str):
        return review
    return review | {part: found | {name: mask.add(found[name])}}


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_texts(inner, change) for key, inner in value.items()}
    return [_map_texts(inner, change) for inner in value] if isinstance(value, list) else value


def _mask_texts(mask: Mask, value: Any) -> Any:
    """Mask every text that does not identify an object. Short ones are masked here, but not everywhere."""
    if isinstance(value, str):
        return mask.add(value) if len(value) >= MIN_ANYWHERE else mask.add_here(value)
    if isinstance(value, dict):
        return {key: inner if key in IDENTIFYING else _mask_texts(mask, inner) for key, inner in value.items()}
    return [_mask_texts(mask, inner) for inner in value] if isinstance(value, list) else value
