"""A record as a story: what started the run, its tasks with their requests below them, what each write changed.

An object that a task has written is compared with what the record showed of it before. The story has no layout:
``rendering`` makes text of it, the live page a waterfall.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.runner.proxy.bodies import objects_in
from rolecall.runner.proxy.request_info import WRITE_VERBS
from rolecall.runner.record.reader import Line, StoredRecord
from rolecall.runner.record.yaml_diff import diff_lines, without_server_fields

UNKNOWN_BEFORE: Final = "written; the record does not show what was there before"
_FIRST_ERROR: Final = 400
_CREATED: Final = 201
_TELLING: Final = ("failed", "ignored", "unreachable")
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class RequestStory:
    """One request; ``status`` is None if there was no answer. ``started`` is a time as it stands in the record."""

    verb: str
    target: str
    status: int | None
    started: str
    seconds: float
    omitted: tuple[tuple[str, str], ...] = ()
    """What was not kept, ``request`` or ``answer``, and why."""
    effects: tuple[str, ...] = ()
    """What it changed: the lines of diffs."""

    @property
    def has_failed(self) -> bool:
        """Whether it was refused or not answered."""
        return self.status is None or self.status >= _FIRST_ERROR


@dataclass(frozen=True, slots=True)
class TaskStory:
    """One task on one host; ``result`` is empty if it did not end, ``message`` if it has nothing to tell."""

    name: str
    host: str
    place: str
    result: str
    started: str
    seconds: float
    is_hidden: bool
    message: str
    items: tuple[tuple[str, str], ...]
    requests: tuple[RequestStory, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One run: its tasks in their order, and the requests of tasks that have not ended."""

    tasks: tuple[TaskStory, ...]
    rest: tuple[RequestStory, ...]


def story_of(record: StoredRecord) -> Story:
    """Return the story of a record."""
    requests = _requests_by_task(record.exchanges)
    tasks = tuple(_task(task, tuple(requests.pop((task["task"], task["host"]), ()))) for task in record.tasks)
    return Story(tasks, tuple(request for each in requests.values() for request in each))


def _requests_by_task(exchanges: Iterable[Line]) -> dict[tuple[str, str], list[RequestStory]]:
    """Return the requests in their order, because each may change what is known of an object."""
    known, found = _Known(), dict[tuple[str, str], list[RequestStory]]()
    for exchange in exchanges:
        found.setdefault((exchange["task"], exchange["host"]), []).append(_request(exchange, known))
    return found


def _task(task: Line, requests: tuple[RequestStory, ...]) -> TaskStory:
    return TaskStory(
        name=task["name"] or task["action"],
        host="" if task["host"] == "localhost" else task["host"],
        place=task["place"],
        result=task["result"],
        started=task.get("started", ""),
        seconds=task["seconds"],
        is_hidden=task["hidden"],
        message=task["message"] if task["result"] in _TELLING else "",
        items=tuple((item["item"], item["result"]) for item in task.get("items", ())),
        requests=requests,
    )


def _request(exchange: Line, known: "_Known") -> RequestStory:
    query = "&".join(f"{name}={value}" for name, value in exchange["query"])
    reasons = ((name, exchange.get(name, {}).get("omitted")) for name in ("request", "answer"))
    status = exchange["status"]
    is_answered = status is not None and status < _FIRST_ERROR
    return RequestStory(
        verb=exchange["verb"],
        target=exchange["path"] + (f"?{query}" if query else ""),
        status=status,
        started=exchange.get("time", ""),
        seconds=exchange["seconds"],
        omitted=tuple((name, reason) for name, reason in reasons if reason),
        effects=tuple(known.effects_of(exchange)) if is_answered else (),
    )


@dataclass(slots=True)
class _Known:
    """What the answers so far have shown of objects."""

    objects: dict[_Key, Any] = field(default_factory=dict)

    def effects_of(self, exchange: Line) -> list[str]:
        """Return the diff of a write, and take note of what an answer shows."""
        answer = exchange.get("answer", {}).get("json")
        if exchange["verb"] == "delete" and "resource" in exchange:
            self.objects.pop(_key_of(exchange, {}), None)
            return []
        effects: list[str] = []
        is_created = exchange["status"] == _CREATED
        for obj in objects_in(answer):
            key = _key_of(exchange, obj)
            if exchange["verb"] in WRITE_VERBS and not exchange.get("subresource"):
                effects += _diff(None if is_created else self.objects.get(key), obj, is_new=is_created)
            self.objects[key] = obj
        return effects


def _diff(before: Any, after: Any, *, is_new: bool) -> list[str]:
    if before is None and not is_new:
        return [UNKNOWN_BEFORE]
    return diff_lines(before and without_server_fields(before), without_server_fields(after))


def _key_of(exchange: Line, obj: Mapping[str, Any]) -> _Key:
    metadata = obj.get("metadata") or {}
    namespace = exchange.get("namespace") or metadata.get("namespace") or ""
    name = exchange.get("name") or metadata.get("name") or ""
    return exchange.get("group", ""), exchange.get("resource", ""), namespace, name
