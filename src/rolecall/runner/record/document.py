"""The record of a run as it leaves the operator: lines of JSON with its secret values masked.

The lines are a head, the exchanges, the tasks and an end; docs/reference/record-format.md describes each field. The end
has a digest of the lines before it, by which a reader knows that nothing is missing and nothing was changed.

Bodies as they stand in a record: decoded if they are JSON or YAML, so that people and programs can read them.

A content is a mapping with one of the keys ``json``, ``lines`` (a watch), ``text``, ``base64`` and ``omitted``.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from rolecall.kube.discovery import ApiResource
from rolecall.runner.proxy import Exchange
from rolecall.runner.proxy.bodies import MAX_INSPECTED_BYTES, decode, decompress
from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.reader import FORMAT, digest_of, time_text, to_line, with_structure
from rolecall.runner.record.run_record import Ending, KeptExchange, RunRecord, TaskRecord
from rolecall.runner.record.secret_values import is_about_secrets, mask_body, mask_query, may_have_secrets

TOO_LONG: Final = "the body is longer than what is kept of one"
NO_ROOM: Final = "the bodies of the run are longer than what is kept of one run"
UNREADABLE: Final = "the body is of a Secret, in a format in which its values cannot be masked"

Content = dict[str, Any]


def content_of(body: bytes, content_type: str, *, is_secret: bool) -> Content:
    """Return a body without compression as it stands in a record; what may hold a Secret must be decodable."""
    found = decode(body, content_type or "application/json")
    if found is not None:
        return {"json": _as_json(found) if "yaml" in content_type else found}
    lines = _lines(body)
    if lines is not None:
        return {"lines": lines}
    if is_secret:
        return {"omitted": UNREADABLE}
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def omitted(reason: str) -> Content:
    """Return what stands in place of a body that was not kept."""
    return {"omitted": reason}


def _as_json(value: Any) -> Any:
    """Return a value of YAML as one of JSON, which has no bytes, sets and times, and only texts for keys."""
    if isinstance(value, dict):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _lines(body: bytes) -> list[Any] | None:
    """Return the values of a body with one JSON value on each line, as a watch has it; None for any other."""
    *whole, last = body.split(b"\n")
    if not whole:
        return None
    try:
        values = [json.loads(line) for line in whole if line.strip()]
        return values + ([json.loads(last)] if last.strip() else [])
    except (ValueError, RecursionError):
        return None


_OK: Final = 200
_RESOURCE_FIELDS: Final = ("group", "version", "resource", "subresource", "namespace", "name")
_NO_REQUEST: Final = RequestInfo("get")
_DISCOVERY: Final = re.compile(r"/(api(/v1)?|apis(/[^/?]+(/[^/?]+)?)?|openapi/[^?]*|version)/?(\?|\Z)")
"""The paths at which the API server describes itself, to everybody."""


def _resource(resource: ApiResource) -> dict[str, Any]:
    gvk = resource.gvk
    return {
        "group": gvk.group,
        "version": gvk.version,
        "kind": gvk.kind,
        "resource": resource.plural,
        "namespaced": resource.namespaced,
        "verbs": sorted(resource.verbs),
        "subresources": sorted(resource.subresources),
    }


def _words(resource: ApiResource) -> Iterator[str]:
    yield from (resource.gvk.group, resource.gvk.version, resource.plural, *resource.subresources)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a record says beyond the run itself.

    ``watch`` and ``versions`` stand in the head as they are. ``secrets`` are values to mask besides those that the
    requests show. ``resources`` are the kinds that the run has asked for.
    """

    watch: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    resources: tuple[ApiResource, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A record as text, and the discovery that its exchanges refer to, by digest.

    ``hides`` tells whether a text is, or contains, a secret value of the run.
    """

    text: str
    discovery: Mapping[str, bytes]
    hides: Callable[[str], bool]


def document_of(record: RunRecord, surroundings: Surroundings) -> Document:
    """Return the record of a run that has ended."""
    writer = _Writer(record, surroundings)
    return writer.document()


def mask_of(record: RunRecord, surroundings: Surroundings) -> Mask:
    """Return the mask of the secret values that a run has met; most runs have met none, and this is quick then."""
    return _Writer(record, surroundings).mask()


class _Writer:
    def __init__(self, record: RunRecord, surroundings: Surroundings) -> None:
        self._record, self._surroundings = record, surroundings
        self._mask = Mask()
        self._discovery: dict[str, bytes] = {}
        self._words = {word for each in surroundings.resources for word in _words(each)}
        self._hidden = {task.ident for task in record.tasks.values() if task.is_hidden}

    def mask(self) -> Mask:
        self._add_known()
        mask_body(self._mask, self._record.obj, _NO_REQUEST, is_hidden=False)
        for kept in self._record.exchanges:
            if self._tells_secrets(kept):
                self._bodies(kept)
        return self._mask

    def document(self) -> Document:
        self._add_known()
        head = self._head()
        exchanges = [self._exchange(number, kept) for number, kept in enumerate(self._record.exchanges, 1)]
        for line in exchanges:  # now that all values are known
            if "%" in line["path"]:
                line["path"] = self._mask.apply_to_path(line["path"])
        tasks = [self._task(task) for task in self._record.tasks.values()]
        lines = [head, *exchanges, *tasks, self._end()]
        text = "\n".join(map(to_line, lines)).encode(errors="replace").decode()  # half a surrogate pair is no text
        masked = self._mask.apply(text)
        pairs = zip(lines, text.split("\n"), masked.split("\n"), strict=True)
        *before, end = [after if after == plain else self._restored(line, after) for line, plain, after in pairs]
        found = [each for each in self._mask.placeholders if each in masked]
        last = json.loads(end) | {"masked": found, "digest": digest_of(before)}
        return Document("".join(f"{line}\n" for line in (*before, to_line(last))), self._discovery, self._mask.hides)

    def _add_known(self) -> None:
        for secret in self._surroundings.secrets:
            self._mask.add(secret)

    def _tells_secrets(self, kept: KeptExchange) -> bool:
        """Return whether a body of an exchange has to be searched; descriptions of the API only name its kinds."""
        if self._is_hidden(kept.exchange) or is_about_secrets(kept.exchange.info):
            return True
        if _DISCOVERY.match(kept.exchange.target):
            return False
        bodies = (decompress(self._record.bodies.get(digest), MAX_INSPECTED_BYTES) for digest in kept.digests)
        return any(body and may_have_secrets(body, kept.exchange.info) for body in bodies)

    def _restored(self, line: Mapping[str, Any], masked: str) -> str:
        try:
            return with_structure(line, json.loads(masked), self._words)
        except ValueError:
            plain = json.loads(to_line(line).encode(errors="replace"))
            return with_structure(line, self._mask.apply_to(plain), self._words)

    def _head(self) -> dict[str, Any]:
        record, surroundings = self._record, self._surroundings
        obj = mask_body(self._mask, record.obj, _NO_REQUEST, is_hidden=False)
        return {
            "type": "head",
            "format": FORMAT,
            **surroundings.versions,
            "job": record.ident,
            "started": time_text(record.started.timestamp()),
            "watch": dict(surroundings.watch),
            "finalizing": record.is_finalizing,
            "causes": list(record.causes),
            "object": obj,
            "resources": [_resource(each) for each in surroundings.resources],
        }

    def _exchange(self, number: int, kept: KeptExchange) -> dict[str, Any]:
        exchange = kept.exchange
        info, origin = exchange.info, exchange.origin
        path, _, text = exchange.target.partition("?")
        query = parse_qsl(text, keep_blank_values=True)
        line: dict[str, Any] = {
            "type": "exchange",
            "number": number,
            "time": time_text(exchange.started),
            "seconds": round(exchange.duration_seconds, 6),
            "task": origin.task,
            "host": origin.host,
            "verb": info.verb,
            **{name: getattr(info, name) for name in _RESOURCE_FIELDS if info.is_resource},
            "method": exchange.method,
            "path": path,
            "query": mask_query(self._mask, query) if self._is_hidden(exchange) else query,
            "status": exchange.status,
        }
        if exchange.impersonated:
            line["impersonated"] = [list(each) for each in exchange.impersonated]
        return line | self._bodies(kept)

    def _bodies(self, kept: KeptExchange) -> dict[str, Any]:
        exchange = kept.exchange
        if kept.is_without_room:
            return {"answer": omitted(NO_ROOM)}
        found: dict[str, Any] = {}
        for name, digest, content_type in (
            ("request", kept.body, exchange.content_type),
            ("sent", kept.sent, exchange.content_type),
            ("answer", kept.answer, exchange.response_type),
        ):
            if digest is not None:
                body = self._record.bodies.get(digest)
                found[name] = {"contentType": content_type, **self._content(exchange, name, body, content_type)}
        if exchange.is_cut:
            found["answer"] = omitted(TOO_LONG)
        return found

    def _content(self, exchange: Exchange, name: str, body: bytes, content_type: str) -> Content:
        info, unpacked = exchange.info, decompress(body, MAX_INSPECTED_BYTES)
        if unpacked is None:
            return omitted(TOO_LONG)
        body = unpacked
        content = content_of(body, content_type, is_secret=is_about_secrets(info))
        if name == "answer" and _DISCOVERY.match(exchange.target) and exchange.status == _OK and "json" in content:
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self._discovery[digest] = body
            return {"discovery": digest}
        is_hidden = self._is_hidden(exchange)
        if not (is_hidden or may_have_secrets(body, info)):
            return content
        return {key: mask_body(self._mask, value, info, is_hidden=is_hidden) for key, value in content.items()}

    def _is_hidden(self, exchange: Exchange) -> bool:
        return exchange.origin.is_hidden or exchange.origin.task in self._hidden

    def _task(self, task: TaskRecord) -> dict[str, Any]:
        line = {
            "type": "task",
            "task": task.ident,
            "host": task.host,
            "name": task.name,
            "place": task.path,
            "action": task.action,
            "result": task.result,
            "message": self._mask.without_cut_value(task.message),
            "hidden": task.is_hidden,
            "started": task.started,
            "seconds": task.duration_seconds,
        }
        cut = self._mask.without_cut_value
        items = [{name: cut(text) for name, text in item.items()} for item in task.items]
        return line | ({"items": items} if items else {})

    def _end(self) -> dict[str, Any]:
        record, ending = self._record, self._record.ending or Ending("unknown")
        summary = ending.summary
        stats = {} if summary is None else dict(summary.stats)
        failures = [] if summary is None else [self._mask.without_cut_value(str(each)) for each in summary.failures]
        return {
            "type": "end",
            "outcome": ending.outcome,
            "rc": None if summary is None else summary.rc,
            "failures": failures,
            "stats": stats,
            "status": None if ending.status is None else dict(ending.status),
            "requeueAfterSeconds": ending.requeue_after_seconds,
            "seconds": 0.0 if summary is None else round(summary.duration_seconds, 3),
            "complete": record.is_complete,
            "exchanges": len(record.exchanges),
            "tasks": len(record.tasks),
        }
