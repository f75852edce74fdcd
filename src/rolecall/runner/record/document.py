"""The record of a run as it leaves the operator: lines of JSON with all secret values masked.

The lines are a head, the exchanges, the tasks, and an end with a digest of the lines before it, so that a reader
detects missing or changed lines; docs/reference/record-format.md describes each field. Masking processes all lines
after all secret values are known. It never changes what identifies an object, nor the structure of the record, even if
a secret value equals a part of it: a record without them can be neither read nor replayed.

Bodies are decoded if they are JSON or YAML, so that people and programs can read them: a content is a mapping with one
of the keys ``json``, ``lines`` (a watch), ``text``, ``base64``, ``discovery``, and ``omitted``.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.bodies import MAX_INSPECTED_BYTES, decode, decompress
from rolecall.kube.discovery import ApiResource
from rolecall.kube.quantities import time_text
from rolecall.kube.references import RawObject
from rolecall.runner.proxy.made_for import with_mark
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.record.reader import FORMAT, MANIFESTS, Line, digest_of, to_line
from rolecall.runner.record.run_record import KeptExchange, RunRecord, TaskRecord
from rolecall.runner.record.timeline import without_server_fields
from rolecall.runner.secrets.mask import Mask
from rolecall.runner.secrets.values import (
    add_words,
    is_about_secrets,
    mask_body,
    mask_copies,
    mask_query,
    may_have_secrets,
)

TOO_LONG: Final = "the body exceeds the limit for one body"
NO_ROOM: Final = "the bodies of the run exceed the limit for one run"
UNREADABLE: Final = "the body is of a Secret, in a format whose values cannot be masked"

_OK: Final = 200
_RESOURCE_FIELDS: Final = ("group", "version", "resource", "subresource", "namespace", "name")
_NO_REQUEST: Final = RequestInfo("get")
_DISCOVERY: Final = re.compile(r"/(api(/v1)?|apis(/[^/?]+(/[^/?]+)?)?|openapi/[^?]*|version)/?(\?|\Z)")
"""The paths where the API server describes itself, to all clients."""

_NOTHING: Final[Mapping[str, Any]] = {}
_SUCCESSES: Final = range(200, 300)
_STRUCTURE: Final = frozenset(
    {
        *("type", "format", "started", "time", "task", "job", "verb", "method", "action", "result", "outcome"),
        *("ansible-core", "causes", "collections", "content", "place", "resources", "rolecall"),
    }
)
"""Fields whose values are words of the format, of Kubernetes, of Ansible, or of the operator."""

_OF_WATCH: Final = ("group", "version", "kind", "role", "playbook")
_WORDS: Final = frozenset(
    {
        *("api", "apis", "namespaces", "json", "lines", "text", "base64", "discovery", "omitted", "contentType"),
        *("item", "result", "message", *_OF_WATCH, "vars", "finalizer", "allowVariables", "status"),
        *("reasons", "obsolete", "proposed", "deleted", MANIFESTS),
    }
)
"""Words of the format and of paths."""

Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """A record as text, and the discovery that its exchanges refer to, by digest.

    ``hides`` returns whether a text is, or contains, a secret value of the run.
    """

    text: str
    discovery: Mapping[str, bytes]
    hides: Callable[[str], bool]


def document_of(
    record: RunRecord,
    *,
    watch: Mapping[str, Any] = _NOTHING,
    versions: Mapping[str, Any] = _NOTHING,
    secrets: Iterable[str] = (),
    resources: Collection[ApiResource] = (),
) -> Document:
    """Return the record of a run that has ended.

    ``watch`` and ``versions`` become part of the head. ``secrets`` are values to mask in addition to those that the
    requests show. ``resources`` are the kinds of the run's requests.
    """
    texts = _Lines(record, secrets)
    head = {
        "type": "head",
        "format": FORMAT,
        **versions,
        "job": record.ident,
        "started": time_text(record.started.timestamp(), "milliseconds"),
        "watch": dict(watch),
        "finalizing": record.is_finalizing,
        "causes": list(record.causes),
        "object": mask_body(texts.mask, record.obj, _NO_REQUEST, is_hidden=False),
        "resources": [_resource(each) for each in resources],
    }
    exchanges = [texts.exchange(number, kept) for number, kept in enumerate(record.exchanges, 1)]
    lines, mask = [head, *exchanges, *map(texts.task, record.tasks.values()), texts.end()], texts.mask
    plain = [to_line(line).encode(errors="replace").decode() for line in lines]  # half a surrogate pair is not text
    if any(map(mask.may_be_in, plain)):
        mask.words |= _WORDS
        for each in resources:
            mask.words |= {each.gvk.group, each.gvk.version, each.gvk.kind, each.gvk.api_version, each.plural}
            mask.words |= each.subresources
        add_words(
            mask,
            [head["object"], lines[-1], *(line.get("answer") for line in exchanges if line["status"] in _SUCCESSES)],
        )
        plain = [_masked(json.loads(text), mask) if mask.may_be_in(text) else text for text in plain]
    *before, end = plain
    placeholders = mask.placeholders_in("\n".join(plain))
    last = to_line(json.loads(end) | {"masked": placeholders, "digest": digest_of(before)})
    return Document("".join(f"{line}\n" for line in (*before, last)), texts.discovery, mask.hides)


def mask_of(record: RunRecord, secrets: Iterable[str]) -> Mask:
    """Return the mask of the secret values in a run; it's quick for most runs, which have none in their requests."""
    texts = _Lines(record, secrets)
    mask_body(texts.mask, record.obj, _NO_REQUEST, is_hidden=False)
    for kept in record.exchanges:
        if texts.may_have_secrets(kept):
            texts.bodies(kept)
    return texts.mask


def content_of(body: bytes, content_type: str, *, is_secret: bool) -> Content:
    """Return an uncompressed body as it is in a record; ``is_secret`` for a body that must be decodable."""
    found = decode(body, content_type or "application/json")
    if found is not None:
        return {"json": json.loads(json.dumps(found)) if "yaml" in content_type else found}  # keys become strings
    try:
        *whole, last = body.split(b"\n")
        if whole:  # one JSON value in each line, as a watch has it
            return {"lines": [json.loads(line) for line in (*whole, last) if line.strip()]}
    except (ValueError, RecursionError):
        pass
    if is_secret:
        return {"omitted": UNREADABLE}
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def manifest_of(obj: RawObject) -> RawObject:
    """Return a deleted object as ``kubectl apply`` creates it again: without its status and what the server sets.

    It loses its mark too, so that prune never deletes the new object.
    """
    content = {name: value for name, value in without_server_fields(obj).items() if name != "status"}
    return with_mark(content, None)


class _Lines:
    """The lines of a record. Each method masks secret values in place and adds them to ``mask``."""

    def __init__(self, record: RunRecord, secrets: Iterable[str]) -> None:
        self.mask = Mask()
        self.discovery: dict[str, bytes] = {}
        self._record = record
        self._hidden_tasks = {task.ident for task in record.tasks.values() if task.is_hidden}
        for secret in secrets:
            self.mask.add(secret)

    def exchange(self, number: int, kept: KeptExchange) -> Line:
        """Return the line of a request and its response."""
        exchange = kept.exchange
        info, origin = exchange.info, exchange.origin
        path, _, text = exchange.target.partition("?")
        query = parse_qsl(text, keep_blank_values=True)
        line: Line = {
            "type": "exchange",
            "number": number,
            "time": time_text(exchange.started, "milliseconds"),
            "seconds": round(exchange.duration_seconds, 6),
            "task": origin.task,
            "host": origin.host,
            "verb": info.verb,
            **{name: getattr(info, name) for name in _RESOURCE_FIELDS if info.is_resource},
            "method": exchange.method,
            "path": path,
            "query": mask_query(self.mask, query) if self._is_hidden(exchange) else query,
            "status": exchange.status,
        }
        if exchange.impersonated:
            line["impersonated"] = [list(each) for each in exchange.impersonated]
        return line | self.bodies(kept)

    def bodies(self, kept: KeptExchange) -> dict[str, Content]:
        """Return the bodies of a request and its response."""
        exchange = kept.exchange
        if kept.is_without_room:
            return {"answer": {"omitted": NO_ROOM}}
        found: dict[str, Content] = {}
        for name, stored, content_type in (
            ("request", kept.body, exchange.content_type),
            ("sent", kept.sent, exchange.content_type),
            ("answer", kept.response, exchange.response_type),
        ):
            if stored is not None:
                body = decompress(stored.content, MAX_INSPECTED_BYTES)
                content = {"omitted": TOO_LONG} if body is None else self._content(exchange, name, body, content_type)
                found[name] = {"contentType": content_type, **content}
        return found | ({"answer": {"omitted": TOO_LONG}} if exchange.is_cut else {})

    def may_have_secrets(self, kept: KeptExchange) -> bool:
        """Return whether the bodies of an exchange have to be searched; API descriptions only name kinds."""
        exchange = kept.exchange
        if self._is_hidden(exchange) or is_about_secrets(exchange.info):
            return True
        if _DISCOVERY.match(exchange.target):
            return False
        bodies = (decompress(each.content, MAX_INSPECTED_BYTES) for each in kept.bodies)
        return any(body and may_have_secrets(body, exchange.info) for body in bodies)

    def task(self, task: TaskRecord) -> Line:
        """Return the line of a task on one host."""
        cut = self.mask.without_cut_value
        items = [{name: cut(text) for name, text in item.items()} for item in task.items]
        line = {
            "type": "task",
            "task": task.ident,
            "host": task.host,
            "name": task.name,
            "place": task.path,
            "action": task.action,
            "result": task.result,
            "message": cut(task.message),
            "hidden": task.is_hidden,
            "started": task.started,
            "seconds": task.duration_seconds,
        }
        return line | ({"items": items} if items else {})

    def end(self) -> Line:
        """Return the last line, without the fields that depend on the others."""
        record, ending, run = self._record, self._record.ending, self._record.ending.run
        return {
            "type": "end",
            "outcome": ending.outcome,
            "rc": run.rc,
            "failures": [self.mask.without_cut_value(str(failure)) for failure in run.failures],
            "stats": dict(run.stats),
            "status": None if ending.status is None else dict(ending.status),
            "requeueAfterSeconds": ending.requeue_after_seconds,
            "prune": self._prune(ending.pruning),
            "seconds": round(run.duration_seconds, 3),
            "complete": record.is_complete,
            "exchanges": len(record.exchanges),
            "tasks": len(record.tasks),
        }

    def _prune(self, pruning: Pruning) -> dict[str, list[Any]]:
        """Return what pruning did, with the manifests of what it deleted."""
        manifests = [
            mask_body(self.mask, manifest_of(each), _NO_REQUEST, is_hidden=False) for each in pruning.manifests
        ]
        texts = {name: list(texts) for name, texts in pruning.texts.items() if texts}
        return texts | ({MANIFESTS: manifests} if manifests else {})

    def _content(self, exchange: Exchange, name: str, body: bytes, content_type: str) -> Content:
        info, is_hidden = exchange.info, self._is_hidden(exchange)
        content = content_of(body, content_type, is_secret=is_about_secrets(info))
        if name == "answer" and _DISCOVERY.match(exchange.target) and exchange.status == _OK and "json" in content:
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.discovery[digest] = body
            return {"discovery": digest}
        if not (is_hidden or may_have_secrets(body, info)):
            return content
        return {key: mask_body(self.mask, value, info, is_hidden=is_hidden) for key, value in content.items()}

    def _is_hidden(self, exchange: Exchange) -> bool:
        return exchange.origin.is_hidden or exchange.origin.task in self._hidden_tasks


def _resource(resource: ApiResource) -> dict[str, Any]:
    return {
        "group": resource.gvk.group,
        "version": resource.gvk.version,
        "kind": resource.gvk.kind,
        "resource": resource.plural,
        "namespaced": resource.namespaced,
        "verbs": sorted(resource.verbs),
        "subresources": sorted(resource.subresources),
    }


def _masked(line: Line, mask: Mask) -> str:
    """Return a line as text with placeholders in place of all values, except in its structure."""
    changed = {}
    for name, value in line.items():
        if name in _STRUCTURE or isinstance(value, int | float) or (name in _RESOURCE_FIELDS and value in mask.words):
            changed[name] = value
        elif name == "path":
            changed[name] = mask.apply_to_path(value)
        elif name == "query":
            changed[name] = [[mask.apply_to_query(text) for text in pair] for pair in value]
        else:
            changed[name] = mask_copies(mask, value)
            if name == "watch":
                changed[name] |= {key: value[key] for key in _OF_WATCH if key in value}
            for plain, masked in zip(value, changed[name], strict=True) if name == "items" else ():
                masked["result"] = plain["result"]
    return to_line(changed)
