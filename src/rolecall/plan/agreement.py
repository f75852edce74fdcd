"""Compares what runs really wrote with what a plan has said before: a figure that tells how far plans can be believed.

A plan is the document of ``rolecall plan --output json``. The records of an object are brought into the same form, so
that secrets, generated names and times are alike; the writes are then compared in their order.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from rolecall.kube.references import GVK, ObjectKey
from rolecall.plan.differences import findings_of
from rolecall.plan.document import FORMAT, document_of
from rolecall.plan.results import ObjectChange, ObjectPlan, Plan, PlannedWrite, TaskName
from rolecall.proxy.request_info import parse
from rolecall.proxy.writes.bodies import objects_in
from rolecall.record.reader import Line, StoredRecord

_GENERATED: Final = re.compile(r"(?P<prefix>[a-z0-9.-]*)<generated (?P<number>\d+)>")
_CREATED: Final = 201
_FIRST_ERROR: Final = 400
_Identity = tuple[str, str, str]
"""Group and kind of an object, its namespace and name."""


class AgreementError(Exception):
    """A plan and records cannot be compared; the text is one line that says what was found and what to do."""


@dataclass(frozen=True, slots=True)
class ObjectAgreement:
    """How far the runs for one object wrote what was planned; ``diffs`` has ``+`` before what only really happened."""

    name: str
    role: str
    agreed: int
    total: int
    diffs: tuple[str, ...] = ()

    @property
    def is_as_planned(self) -> bool:
        """Whether every write was planned, and every planned write happened."""
        return self.agreed == self.total


@dataclass(frozen=True, slots=True)
class Agreement:
    """The objects that both the plan and the records tell about, and the planned ones without a record."""

    objects: tuple[ObjectAgreement, ...] = ()
    unrecorded: tuple[str, ...] = ()

    def by_role(self) -> dict[str, list[ObjectAgreement]]:
        """Return the objects of each role or playbook."""
        found: dict[str, list[ObjectAgreement]] = {}
        for each in self.objects:
            found.setdefault(each.role, []).append(each)
        return found


@dataclass(slots=True)
class _Numbers:
    """Numbers generated names in the order in which one object's writes show them."""

    known: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def renumbered(self, text: str) -> str:
        return _GENERATED.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        if match[0] not in self.known:
            prefix = match["prefix"]
            self.counts[prefix] = self.counts.get(prefix, 0) + 1
            self.known[match[0]] = f"{prefix}<generated {self.counts[prefix]}>"
        return self.known[match[0]]


def read_plan(path: Path) -> dict[str, Any]:
    """Return the document of a plan. Raises AgreementError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgreementError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise AgreementError(f"{path}: not JSON: expected what 'rolecall plan --output json' prints") from error
    if not isinstance(document, dict) or not isinstance(document.get("objects"), list):
        raise AgreementError(f"{path}: not a plan: expected what 'rolecall plan --output json' prints")
    if document.get("format") != FORMAT:
        raise AgreementError(f"{path}: the plan has format {document.get('format')}, this rolecall reads {FORMAT}")
    return document


def agreement_of(document: Mapping[str, Any], records: Iterable[StoredRecord]) -> Agreement:
    """Compare a plan with records: of each object as many as the plan had rounds, the oldest first."""
    by_object: dict[_Identity, list[StoredRecord]] = {}
    for record in sorted(records, key=lambda each: (str(each.head["started"]), each.path)):
        by_object.setdefault(_identity(record.head["object"]), []).append(record)
    compared, unrecorded = [], []
    for planned in document["objects"]:
        named = {"metadata": {"namespace": planned["namespace"], "name": planned["name"]}}
        found = by_object.get(_identity({**planned, **named}), [])[: planned["rounds"]]
        if found:
            compared.append(_compared(planned, found))
        else:
            unrecorded.append(_name(planned))
    return Agreement(tuple(compared), tuple(unrecorded))


def _compared(planned: Mapping[str, Any], records: list[StoredRecord]) -> ObjectAgreement:
    happened = [write for record in records for write in _writes_of(record)]
    before, after = _comparable(planned["writes"]), _comparable(happened)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    diffs = []
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag != "equal":
            diffs += [f"-{line}" for line in before[start:end]] + [f"+{line}" for line in after[other_start:other_end]]
    agreed = sum(block.size for block in matcher.get_matching_blocks())
    watch = records[0].head["watch"]
    role = str(watch.get("role") or watch.get("playbook") or "")
    return ObjectAgreement(_name(planned), role, agreed, max(len(before), len(after)), tuple(diffs))


def _comparable(writes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each write as a text that is equal for equal writes."""
    numbers = _Numbers()
    found = []
    for write in writes:
        answer = "accepted" if write["status"] < _FIRST_ERROR else "refused"
        body = json.dumps(_without_version(write["body"]), sort_keys=True, ensure_ascii=False)
        text = f"{write['method']} {write['target']} {write['contentType'].partition(';')[0]} {answer} {body}"
        found.append(numbers.renumbered(text))
    return found


def _without_version(body: Any) -> Any:
    """Return a body without the version of the object, which is another one in a shadow."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(metadata, dict):
        return body
    return body | {"metadata": {key: value for key, value in metadata.items() if key != "resourceVersion"}}


def _writes_of(record: StoredRecord) -> list[dict[str, Any]]:
    """Return the writes of a recorded run in the form of a plan's document."""
    hidden = {task["task"] for task in record.tasks if task["hidden"]}
    writes: list[PlannedWrite] = []
    changes: list[ObjectChange] = []
    for exchange in record.exchanges:
        query = urlencode(exchange["query"])
        target = exchange["path"] + (f"?{query}" if query else "")
        info = parse(exchange["method"], target)
        if not info.is_write or info.is_dry_run:
            continue
        writes.append(_write(exchange, target, is_hidden=exchange["task"] in hidden))
        changes += _created(exchange)
    started, ended = _time_of(record)
    plan = ObjectPlan(
        gvk=GVK.of_object(record.head["object"]),
        key=ObjectKey.of_object(record.head["object"]),
        changes=tuple(changes),
        writes=tuple(writes),
        secrets=tuple(record.end.get("masked") or ()),
        started=started,
        ended=ended,
    )
    alone = Plan((plan,))
    found: list[dict[str, Any]] = document_of(alone, findings_of(alone))["objects"][0]["writes"]
    return found


def _time_of(record: StoredRecord) -> tuple[float, float]:
    """Return between which POSIX times a run ran; its seconds do not count for how long it waited for a process."""
    started = datetime.fromisoformat(record.head["started"]).timestamp()
    last = max((datetime.fromisoformat(each["time"]).timestamp() for each in record.exchanges), default=started)
    return started, max(started, last) + float(record.end["seconds"])


def _write(exchange: Line, target: str, *, is_hidden: bool) -> PlannedWrite:
    request = exchange.get("request") or {}
    body = json.dumps(request["json"]).encode() if "json" in request else str(request.get("text", "")).encode()
    task = TaskName("", is_hidden=is_hidden)
    content_type = request.get("contentType", "")
    return PlannedWrite(task, exchange["method"], target, content_type, body, exchange["status"] or _FIRST_ERROR)


def _created(exchange: Line) -> Iterator[ObjectChange]:
    """Yield the objects that a request has created, for the names that the API server has made."""
    if exchange["status"] == _CREATED:
        for obj in objects_in((exchange.get("answer") or {}).get("json")):
            yield ObjectChange(GVK.of_object(obj), ObjectKey.of_object(obj), None, obj)


def _identity(obj: Mapping[str, Any]) -> _Identity:
    gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
    return f"{gvk.group} {gvk.kind}", key.namespace, key.name


def _name(planned: Mapping[str, Any]) -> str:
    return f"{planned['kind']} {ObjectKey(planned['namespace'], planned['name'])}"
