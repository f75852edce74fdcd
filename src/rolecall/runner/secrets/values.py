"""Decides which values are secret, and masks those in decoded bodies in place.

Secret values are the content and annotations of a Secret, except identifying fields; tokens that the API server issues
or reviews; and each string and long number in the requests and responses of a task with ``no_log``, except identifying
fields. So are the values of variables whose names suggest it, and the fields that a watch lists in ``sensitive``.
Masking in place also covers short values; ``Mask.apply`` masks the text of the whole record afterwards.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from rolecall.kube.json_values import texts_in
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import SECRETS, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.secrets.mask import MIN_ANYWHERE, Mask

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KNOWN_DOMAINS: Final = ("kubernetes.io", "k8s.io", "helm.sh", "operator-sdk")
_TOKENS: Final = {"TokenRequest": ("status", "token"), "TokenReview": ("spec", "token")}
_WORDS: Final = (b"Secret", *(kind.encode() for kind in _TOKENS))
_OF_SECRETS: Final = frozenset({"apiVersion", "immutable", "kind", "metadata", "type"})
"""The harmless fields of a Secret. A field that the API server doesn't know may be a misspelled one."""

_OF_REFERENCES: Final = frozenset(
    {
        *("apiGroup", "apiVersion", "blockOwnerDeletion", "controller", "fieldPath", "kind", "name", "namespace"),
        *("resourceVersion", "uid"),
    }
)
"""The fields of references to objects: owner references, and those in Events and many other kinds."""

_OF_DELETIONS: Final = frozenset(
    {"dryRun", "gracePeriodSeconds", "orphanDependents", "preconditions", "propagationPolicy"}
)
_HARMLESS_PARAMETERS: Final = frozenset(
    {
        *("allowWatchBookmarks", "container", "continue", "dryRun", "fieldManager", "fieldSelector", "fieldValidation"),
        *("follow", "force", "gracePeriodSeconds", "labelSelector", "limit", "orphanDependents", "pretty", "previous"),
        *("propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "stderr", "stdin"),
        *("stdout", "tailLines", "timeout", "timeoutSeconds", "timestamps", "tty", "watch"),
    }
)
"""The query parameters that a task with ``no_log`` shows. They don't include the command of an exec."""

_NAMES: Final = frozenset(
    {"apiGroup", "apiVersion", "contentType", "group", "kind", "name", "namespace", "resourceVersion", "uid"}
)
"""The fields that name objects and kinds."""

IDENTIFYING: Final = _NAMES | {
    *("finalizers", "labels", "managedFields", "matchLabels", "op", "ownerReferences", "path", "phase", "protocol"),
    *("selector", "type"),
}
"""The fields that a task with ``no_log`` shows: without them its requests couldn't be identified."""

_OF_CONDITIONS: Final = frozenset({"reason", "status", "type"})
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_FIELD: Final = re.compile("[A-Za-z]+")

_CONTAINERS: Final = frozenset({"items", "object", "rows"})
"""The keys where lists, watch events, and tables have their objects."""

_SENSITIVE_NAME: Final = re.compile(r"pass|secret|token|credential|api_?key|private_?key", re.IGNORECASE)
"""Names of variables whose values count as secret."""


def is_about_secrets(info: RequestInfo) -> bool:
    """Return whether a request is for Secrets."""
    return (info.group, info.resource) == SECRETS


def may_have_secrets(body: bytes, info: RequestInfo) -> bool:
    """Return whether a body has to be searched. Most don't, and this check is faster than the search."""
    return is_about_secrets(info) or any(word in body for word in _WORDS)


def secret_texts(watch: Watch, environment: Mapping[str, str]) -> list[str]:
    """Return the values of sensitive variables, by their names: of the environment and of the watch's ``vars``."""
    finalizer = watch.finalizer.variables if watch.finalizer else {}
    found = [*_sensitive_values(environment), *_sensitive_values(watch.variables), *_sensitive_values(finalizer)]
    return [text for text in found if len(text) >= MIN_ANYWHERE and not text.startswith("/")]


def marked_texts(watch: Watch, obj: RawObject) -> list[str]:
    """Return the strings of an object that the watch marks as sensitive."""
    return [text for path in watch.sensitive for match in path.find(obj) for text in texts_in(match.value)]


def _sensitive_values(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the strings and numbers below a sensitive name, or next to one in ``{name: …, value: …}``."""
    if isinstance(value, Mapping):
        named = {"value"} if _SENSITIVE_NAME.search(str(value.get("name", ""))) else set()
        for name, inner in value.items():
            is_named = name in named or bool(_SENSITIVE_NAME.search(str(name)))
            yield from _sensitive_values(inner, is_secret=is_secret or is_named)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _sensitive_values(inner, is_secret=is_secret)
    elif is_secret and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def mask_body(mask: Mask, body: Any, info: RequestInfo, *, is_hidden: bool) -> Any:
    """Return a decoded body with its secret values masked; ``is_hidden`` for a body of a task with ``no_log``."""
    body = _mask(mask, body, is_secret=is_about_secrets(info))
    is_status = isinstance(body, dict) and body.get("kind") == "Status"
    return _mask_hidden(mask, body) if is_hidden and (is_status or not is_about_secrets(info)) else body


def add_words(mask: Mask, obj: Any) -> None:
    """Add the names, kinds, times, and conditions in an object to the words of a mask, and the names of its fields."""

    def named(scalar: str | float, place: "_Place") -> str | float:
        if place is _Place.NAME:
            mask.words.add(str(scalar))
        return scalar

    def field(key: str, place: "_Place") -> str:
        if place is _Place.VALUE and _FIELD.fullmatch(key):
            mask.words.add(key)
        return key

    _walk(obj, named, field)


def mask_copies(mask: Mask, value: Any) -> Any:
    """Return a JSON value with placeholders in place of all values that the mask knows, except its words."""

    def copied(scalar: str | float, place: "_Place") -> Any:
        is_shown = place in (_Place.NAME, _Place.SHOWN)
        return scalar if is_shown and scalar in mask.words else mask.apply_to(scalar)

    def renamed(key: str, _: "_Place") -> str:
        return key if key in mask.words or _is_known_annotation(key) else mask.apply_to_key(key)

    return _walk(value, copied, renamed)


class _Place(Enum):
    """What a scalar is: content of an object, an annotation, a name, another field that is shown, or anything else."""

    CONTENT, ANNOTATION, NAME, SHOWN, VALUE = range(5)


_OPAQUE: Final = {
    **dict.fromkeys(("binaryData", "data", "stringData"), _Place.CONTENT),
    "annotations": _Place.ANNOTATION,
    **dict.fromkeys(("finalizers", "labels", "managedFields", "matchLabels", "selector"), _Place.SHOWN),
}
"""The fields below which everything has the same place, whatever its key."""


def _walk(
    value: Any,
    change: Callable[[str | float, _Place], Any],
    rename: Callable[[str, _Place], str] = lambda key, _: key,
    place: _Place = _Place.VALUE,
) -> Any:
    """Return a JSON value with each string, number, and key changed; a last-applied object is decoded."""
    if isinstance(value, list | tuple):
        return [_walk(inner, change, rename, place) for inner in value]
    if not isinstance(value, dict):
        return change(value, place) if isinstance(value, str | int | float) and not isinstance(value, bool) else value
    changed = {}
    for key, inner in value.items():
        applied = _decoded(inner) if key == LAST_APPLIED else None
        if applied is None:
            found = _walk(inner, change, rename, _place(key, inner, value, place))
        else:
            found = _encoded(_walk(applied, change, rename))
        changed[rename(key, place)] = found
    return changed


def _place(key: str, inner: Any, around: Mapping[str, Any], above: _Place) -> _Place:
    """Return the place of a field; ``above`` is that of the object around it."""
    if above is _Place.ANNOTATION:
        return _Place.SHOWN if _is_known_annotation(key) else _Place.CONTENT
    if above is not _Place.VALUE:
        return above
    if key in _OPAQUE or isinstance(inner, dict | list):
        is_operation = key == "value" and "op" in around
        return _OPAQUE.get(key, _Place.CONTENT if is_operation else _Place.VALUE)
    is_name = key in _NAMES or (key == "type" and "object" in around)  # the latter in an event of a watch
    if key in _OF_CONDITIONS:
        is_name |= around.get("kind") in ("Event", "Status") or {"type", "status"} <= around.keys()
    elif isinstance(inner, str) and _TIME.fullmatch(inner):
        is_name |= key.lower().endswith(("time", "timestamp"))
    if is_name:
        return _Place.NAME
    return _Place.SHOWN if key in IDENTIFYING else _Place.VALUE


def _is_known_annotation(name: str) -> bool:
    domain = name.partition("/")[0] if "/" in name else ""
    return any(f".{domain}".endswith(f".{known}") for known in _KNOWN_DOMAINS)


def _decoded(text: Any) -> Any:
    """Return the object in a last-applied annotation, None if it isn't one."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _encoded(applied: Any) -> str:
    return json.dumps(applied, ensure_ascii=False, separators=(",", ":"))


def mask_query(mask: Mask, query: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the query of a task with ``no_log`` with its values masked."""
    return [(name, value if name in _HARMLESS_PARAMETERS else _mask_hidden(mask, value)) for name, value in query]


def _mask_hidden(mask: Mask, value: Any) -> Any:
    """Mask each string and long number that doesn't identify an object. Short strings are only masked in place."""

    def masked(scalar: str | float, place: _Place) -> str | float:
        text = _text_of(scalar)
        if place in (_Place.NAME, _Place.SHOWN):
            return scalar
        if len(text) >= MIN_ANYWHERE:
            return mask.add(text)
        return mask.placeholder(text) if isinstance(scalar, str) else scalar

    def field(key: str, _: _Place) -> str:
        mask.words.add(key)
        return key

    return _walk(value, masked, field)


def _mask_all(mask: Mask, value: Any) -> Any:
    """Mask each string and number; a number becomes a string."""
    return _walk(value, lambda scalar, _: mask.add(_text_of(scalar)), place=_Place.CONTENT)


def _text_of(scalar: str | float) -> str:
    return scalar if isinstance(scalar, str) else json.dumps(scalar)


def _mask(mask: Mask, value: Any, *, is_secret: bool) -> Any:
    """Mask the Secrets in a value; with ``is_secret`` the value itself is a Secret, a list of them, or a patch."""
    if isinstance(value, list):
        if is_secret and any(isinstance(each, dict) and "op" in each for each in value):
            return [_mask_operation(mask, operation) for operation in value]
        return [_mask(mask, each, is_secret=is_secret) for each in value]
    if not isinstance(value, dict):
        return value
    value = {key: _mask(mask, inner, is_secret=is_secret and key in _CONTAINERS) for key, inner in value.items()}
    kind = value.get("kind")
    if kind in _TOKENS:
        part, name = _TOKENS[kind]
        review = value.get(part)
        if not isinstance(review, dict) or not isinstance(review.get(name), str):
            return value
        return value | {part: review | {name: mask.add(review[name])}}
    is_other = kind == "Status" or value.keys() & _CONTAINERS
    is_named_so = kind == "Secret" and not value.keys() <= _OF_REFERENCES
    return _mask_secret(mask, value) if is_named_so or (is_secret and not is_other) else value


def _mask_secret(mask: Mask, secret: RawObject) -> RawObject:
    harmless = _OF_SECRETS if secret.get("kind") == "Secret" else _OF_SECRETS | _OF_DELETIONS
    changed: RawObject = {}
    for key, value in secret.items():
        if key == "data":
            mask.words |= value.keys() if isinstance(value, dict) else set()
            changed[key] = _walk(value, lambda scalar, _: mask.add_base64(_text_of(scalar)), place=_Place.CONTENT)
        else:
            changed[key] = value if key in harmless else _mask_all(mask, value)
    if isinstance(changed.get("data"), dict) and (namespace := metadata_of(secret).get("namespace")):
        own = base64.b64encode(str(namespace).encode()).decode()  # in the token of a service account
        changed["data"] |= {key: value for key, value in secret["data"].items() if (key, value) == ("namespace", own)}
    metadata = secret.get("metadata")
    if isinstance(metadata, dict) and "annotations" in metadata:
        annotations = metadata["annotations"]
        if isinstance(annotations, dict):
            masked: Any = {name: _mask_annotation(mask, name, value) for name, value in annotations.items()}
        else:
            masked = _mask_all(mask, annotations)
        changed["metadata"] = metadata | {"annotations": masked}
    return changed


def _mask_annotation(mask: Mask, name: str, value: Any) -> Any:
    if name == LAST_APPLIED:
        applied = _decoded(value)
        return _mask_all(mask, value) if applied is None else _encoded(_mask(mask, applied, is_secret=True))
    return value if _is_known_annotation(name) else _mask_all(mask, value)


def _mask_operation(mask: Mask, operation: Any) -> Any:
    """Mask one operation of a JSON patch of a Secret, as if its value were all that the Secret contains."""
    if not isinstance(operation, dict) or "value" not in operation:
        return operation
    path = str(operation.get("path", "")).removeprefix("/")
    if not path:
        return operation | {"value": _mask(mask, operation["value"], is_secret=True)}
    fields = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/", 2)]
    secret = operation["value"]
    for field in reversed(fields):
        secret = {field: secret}
    masked = _mask_secret(mask, secret)
    for field in fields:
        masked = masked[field]
    return operation | {"value": masked}
