"""Finds the secret values in the decoded bodies of requests and answers, and masks them where they stand.

Secret are: what is in a Secret and in its annotations, apart from what identifies it; tokens that the API server gives
or is asked about; and every text and long number in the requests and answers of a task with ``no_log``, apart from what
identifies objects. Masking in place covers short values too; the text of the whole record is masked afterwards, by
``Mask.apply``.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.record.masking import MIN_ANYWHERE, Mask, to_text

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KNOWN_DOMAINS: Final = ("kubernetes.io", "k8s.io", "helm.sh", "operator-sdk")
_TOKENS: Final = {"TokenRequest": ("status", "token"), "TokenReview": ("spec", "token")}
_WORDS: Final = (b"Secret", *(kind.encode() for kind in _TOKENS))
_OF_SECRETS: Final = frozenset({"apiVersion", "immutable", "kind", "metadata", "type"})
"""The fields of a Secret that hold no secret. A field that the API server does not know may be one with a mistake."""

_OF_REFERENCES: Final = frozenset(
    {
        "apiGroup",
        "apiVersion",
        "blockOwnerDeletion",
        "controller",
        "fieldPath",
        "kind",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    }
)
"""The fields of what refers to an object: owner references, and references of Events and of many other kinds."""

_OF_DELETIONS: Final = frozenset(
    {"dryRun", "gracePeriodSeconds", "orphanDependents", "preconditions", "propagationPolicy"}
)
_HARMLESS_PARAMETERS: Final = frozenset(
    {
        "allowWatchBookmarks",
        "container",
        "continue",
        "dryRun",
        "fieldManager",
        "fieldSelector",
        "fieldValidation",
        "follow",
        "force",
        "gracePeriodSeconds",
        "labelSelector",
        "limit",
        "orphanDependents",
        "pretty",
        "previous",
        "propagationPolicy",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "stderr",
        "stdin",
        "stdout",
        "tailLines",
        "timeout",
        "timeoutSeconds",
        "timestamps",
        "tty",
        "watch",
    }
)
"""What a task with ``no_log`` does not hide of a query. The command of an exec is not among them."""

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
    return _mask_texts(mask, body) if is_hidden else body


def mask_query(mask: Mask, query: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the query of a task with ``no_log`` with its values masked."""
    return [(name, value if name in _HARMLESS_PARAMETERS else _mask_texts(mask, value)) for name, value in query]


def _mask(mask: Mask, value: Any, *, is_secret: bool) -> Any:
    """Mask the Secrets in a value; with ``is_secret`` the value is one itself, a list of them, or a patch of one."""
    if isinstance(value, list):
        if is_secret and any(isinstance(each, dict) and "op" in each for each in value):
            return [_mask_operation(mask, operation) for operation in value]
        return [_mask(mask, each, is_secret=is_secret) for each in value]
    if not isinstance(value, dict):
        return value
    value = {key: _mask(mask, inner, is_secret=is_secret and key in _CONTAINERS) for key, inner in value.items()}
    kind = value.get("kind")
    if kind in _TOKENS:
        return _mask_token(mask, value)
    is_other = kind == "Status" or value.keys() & _CONTAINERS
    is_named_so = kind == "Secret" and not value.keys() <= _OF_REFERENCES
    return _mask_secret(mask, value) if is_named_so or (is_secret and not is_other) else value


_CONTAINERS: Final = frozenset({"items", "object", "rows"})
"""The keys below which lists, watch events and tables have their objects."""


def _mask_secret(mask: Mask, secret: RawObject) -> RawObject:
    harmless = _OF_SECRETS if secret.get("kind") == "Secret" else _OF_SECRETS | _OF_DELETIONS
    changed = {
        key: value if key in harmless else _map_texts(value, mask.add_base64 if key == "data" else mask.add)
        for key, value in secret.items()
    }
    if isinstance(changed.get("data"), dict) and metadata_of(secret).get("namespace"):
        changed["data"] |= {key: value for key, value in secret["data"].items() if key == "namespace"}
    if "metadata" in secret:
        changed["metadata"] = _mask_metadata(mask, secret["metadata"])
    return changed


def _mask_metadata(mask: Mask, metadata: Any) -> Any:
    if not isinstance(metadata, dict) or "annotations" not in metadata:
        return metadata
    annotations = metadata["annotations"]
    if isinstance(annotations, dict):
        return metadata | {
            "annotations": {name: _mask_annotation(mask, name, value) for name, value in annotations.items()}
        }
    return metadata | {"annotations": _map_texts(annotations, mask.add)}


def _mask_annotation(mask: Mask, name: str, value: Any) -> Any:
    if name == LAST_APPLIED and isinstance(value, str):
        try:
            applied = _mask(mask, json.loads(value), is_secret=True)
        except (ValueError, RecursionError):
            return mask.add(value)
        return json.dumps(applied, ensure_ascii=False, separators=(",", ":"))
    domain = name.partition("/")[0] if "/" in name else ""
    is_known = any(f".{domain}".endswith(f".{known}") for known in _KNOWN_DOMAINS)
    return value if is_known else _map_texts(value, mask.add)


def _mask_operation(mask: Mask, operation: Any) -> Any:
    """Mask one operation of a JSON patch of a Secret."""
    if not isinstance(operation, dict) or "value" not in operation:
        return operation
    field, _, below = str(operation.get("path", "")).lstrip("/").partition("/")
    value = operation["value"]
    if not field:
        return operation | {"value": _mask(mask, value, is_secret=True)}
    if field == "metadata":
        name = below.removeprefix("annotations/").replace("~1", "/").replace("~0", "~")
        if below.startswith("annotations/"):
            return operation | {"value": _mask_annotation(mask, name, value)}
        whole = _mask_metadata(mask, {below: value} if below else value)
        return operation | {"value": whole[below] if below else whole}
    return operation | {"value": _mask_secret(mask, {field: value})[field]}


def _mask_token(mask: Mask, review: RawObject) -> RawObject:
    part, name = _TOKENS[review["kind"]]
    found = review.get(part)
    if not isinstance(found, dict) or not isinstance(found.get(name), str):
        return review
    return review | {part: found | {name: mask.add(found[name])}}


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Change every text and number in a value of JSON; a number becomes text."""
    if isinstance(value, dict):
        return {key: _map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_map_texts(inner, change) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    return change(value if isinstance(value, str) else to_text(value))


def _mask_texts(mask: Mask, value: Any) -> Any:
    """Mask every text that does not identify an object, and long numbers. Short texts are masked in this place only."""
    if isinstance(value, dict):
        return {key: inner if key in IDENTIFYING else _mask_texts(mask, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mask_texts(mask, inner) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else to_text(value)
    if len(text) >= MIN_ANYWHERE:
        return mask.add(text)
    return mask.add_here(text) if isinstance(value, str) else value
