"""The states of objects whose status the operator writes, and their failures in groups.

Everything is computed from the objects: ``state_of`` reads the conditions, and ``groups_of`` puts failures together
whose messages differ only in names, times, and amounts. A group shows what its messages have in common.

A failure counts before everything else. An object whose retry is in progress is failing, because ``Failure`` stays true
until the run has ended, and so is an object whose finalizer fails.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from rolecall.kube.metadata import generation_of, is_being_deleted, status_of
from rolecall.kube.quantities import parse_time
from rolecall.kube.references import GVK, ObjectKey, RawObject, plural_of

VARIES: Final = "…"
"""The part of a message that differs by object."""

MAX_SHORT: Final = 200
"""The number of characters of a short message."""

_FIRST_YEAR, _LAST_YEAR = 1970, 9999
_MIN_NAME: Final = 3
"""Shorter names may be words of a message, so they are only replaced where they can't be."""

_TASK = re.compile(r"(?:Finalizer \S+: )?Task (?P<quote>['\"])(?P<task>.*?)(?P=quote)(?: on \S+)?: ", re.DOTALL)
"""The start of a message: the task that failed, in the format of ``TaskFailure``."""

_VALIDATION: Final = "Validating arguments against arg spec"
"""The start of the name of the task that Ansible adds to roles. Its message names everything that its name does."""

_LIST_OF_OPTIONS = re.compile(r"\.? Supported parameters include: .*?(?:\.(?= |$)|$)")
_WORD = re.compile(r"[^\s\"']+")
_NOISE = re.compile(
    r"""
    (?<![A-Za-z0-9])(?:
      [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}                              # uid
    | \d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?                 # date and time
    | \d+:\d\d:\d\d(?:\.\d+)?                                                                # time, or duration
    | \d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:/\d+)?\b                                            # address
    | \d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|min|k|[KMGT]i?|[KMGT]i?B)\b                          # duration, quantity
    | \d+\.\d+\b
    | \d{4,}\b
    | 0x[0-9a-f]+\b
    | (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b                                         # digest
    | (?<=-)(?:[a-z0-9]{8,10}-)?(?=[a-z0-9]*\d)[a-z0-9]{5}\b                                  # end of a Pod's name
    )
    """,
    re.VERBOSE,
)


class State(StrEnum):
    """The state of an object, most important first."""

    FAILING = "failing"
    DELETING = "deleting"
    RUNNING = "running"
    NOT_READY = "not ready"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class ObjectState:
    """An object's state, the whole message and the reason of the condition that reports it, and since when it does.

    ``since`` is in seconds since the epoch, None if no condition has a valid time.
    """

    gvk: GVK
    key: ObjectKey
    state: State
    reason: str = ""
    message: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failing object, the message of its failure, and since when it fails, if this is known."""

    gvk: GVK
    key: ObjectKey
    message: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Equal failures of objects of one kind.

    ``message`` is short: one line with the task, unless Ansible has added the task. ``total`` is the number of objects
    of the kind, failing or not.
    """

    gvk: GVK
    message: str
    common: str
    """What the messages have in common, which identifies the group."""
    keys: tuple[ObjectKey, ...]
    since: float | None
    total: int

    def heading(self, now: float, zone: tzinfo = UTC) -> str:
        """Return the group in one line, without its message: ``33 of 35 Teams fail since 07:42``."""
        kinds = self.gvk.kind if self.total == 1 else plural_kind(self.gvk.kind)
        verb = "fails" if len(self.keys) == 1 else "fail"
        since = "" if self.since is None else f" since {clock_text(self.since, now, zone)}"
        return f"{len(self.keys)} of {self.total} {kinds} {verb}{since}"


def state_of(obj: RawObject) -> ObjectState:
    """Return the state of an object from its conditions; a failure is as old as its oldest condition."""
    found = status_of(obj).get("conditions")
    items = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    known: dict[str, Mapping[str, Any]] = {str(each.get("type")): each for each in reversed(items)}
    state, condition = next((state, condition) for is_in, state, condition in _checks(obj, known) if is_in)
    reason, message = (_text(condition.get(name)) for name in ("reason", "message"))
    others = [known.get(name, {}) for name in ("Failure", "Stalled")] if state is State.FAILING else []
    reporting = (condition, *(each for each in others if _is(each, "True")))
    times = [time for each in reporting if (time := _time(each)) is not None]
    return ObjectState(GVK.of_object(obj), ObjectKey.of_object(obj), state, reason, message, min(times, default=None))


def _checks(obj: RawObject, known: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[bool, State, Mapping[str, Any]]]:
    """Yield whether an object is in a state, the state, and the condition that reports it; the first one counts."""
    failure, stalled, running, successful, ready, reconciling, paused = (
        known.get(name, {})
        for name in ("Failure", "Stalled", "Running", "Successful", "Ready", "Reconciling", "Paused")
    )
    yield _is(failure, "True"), State.FAILING, failure
    yield _is(stalled, "True"), State.FAILING, stalled
    yield _is(ready, "False") and ready.get("reason") == "RunFailed", State.FAILING, ready
    yield is_being_deleted(obj), State.DELETING, running
    yield _is(paused, "True"), State.PAUSED, paused
    yield _is(running, "True") and running.get("reason") == "Running", State.RUNNING, running
    generation, observed = generation_of(obj), status_of(obj).get("observedGeneration")
    reason = f"generation {generation} not observed yet, the last is {observed}"
    yield observed not in (None, generation), State.UNKNOWN, {"reason": reason}
    yield bool(ready) and not _is(ready, "True"), State.NOT_READY, ready
    yield _is(reconciling, "True"), State.NOT_READY, reconciling
    yield bool(ready) or _is(successful, "True"), State.READY, ready or successful
    yield True, State.UNKNOWN, {}


def failures_of(states: Iterable[ObjectState]) -> list[Failure]:
    """Return the failures among states of objects."""
    return [
        Failure(each.gvk, each.key, each.message or each.reason, each.since)
        for each in states
        if each.state is State.FAILING
    ]


def groups_of(failures: Iterable[Failure], totals: Mapping[GVK, int]) -> list[FailureGroup]:
    """Return the groups of equal failures, the largest first; ``totals`` are the numbers of objects of each kind."""
    found: dict[tuple[GVK, str], list[Failure]] = {}
    for failure in failures:
        found.setdefault((failure.gvk, common_message(failure.message, failure.key)), []).append(failure)
    groups = [_group(gvk, common, members, totals) for (gvk, common), members in found.items()]
    return sorted(groups, key=lambda each: (-len(each.keys), str(each.gvk), each.keys[0]))


def _group(gvk: GVK, common: str, members: list[Failure], totals: Mapping[GVK, int]) -> FailureGroup:
    keys = tuple(sorted(each.key for each in members))
    times = [each.since for each in members if each.since is not None]
    first = short_message(members[0].message)
    are_equal = all(short_message(message) == first for message in {each.message for each in members})
    message = first if are_equal else common
    return FailureGroup(gvk, message, common, keys, min(times, default=None), max(totals.get(gvk, 0), len(keys)))


def short_message(message: str) -> str:
    """Return the first part of a message in one line: the task, unless Ansible has added it, and its reason."""
    return _cut(_one_line(message))


def task_and_reason(message: str) -> tuple[str, str]:
    """Return the task that a message names at its start, empty if it names none, and the rest of the message."""
    start = _TASK.match(message)
    return ("", message) if start is None else (start["task"], message[start.end() :])


def _one_line(message: str) -> str:
    task, text = task_and_reason(message.strip())
    if task:
        text = re.split(r"\nTask ['\"]", text, maxsplit=1)[0]  # failures of other hosts and tasks
    text = _LIST_OF_OPTIONS.sub("", " ".join(text.split()))
    return text if not task or task.startswith(_VALIDATION) else f"{task}: {text}"


@lru_cache(maxsize=20_000)  # the dashboard groups the same failures again every second
def common_message(message: str, key: ObjectKey) -> str:
    """Return a short message in which everything that differs by object is replaced: names, uids, times, amounts."""
    text = _one_line(message)
    for name in sorted({key.name, key.namespace} - {""}, key=len, reverse=True):
        text = _without_name(text, name)
    return _cut(_WORD.sub(_without_noise, text[: 2 * MAX_SHORT]))


def _without_noise(word: re.Match[str]) -> str:
    text = word[0]
    return text if text.isalpha() else _NOISE.sub(VARIES, text)


def _without_name(text: str, name: str) -> str:
    """Return a text without a name, unless it is a part of a word there."""
    word = str.isalnum if len(name) >= _MIN_NAME else lambda character: character.isalnum() or character in " .,"
    start, *rest = text.split(name)
    for part in rest:
        is_part = word(start[-1:]) or word(part[:1])
        start += (name if is_part else VARIES) + part
    return start


def plural_kind(kind: str) -> str:
    """Return the plural of a kind: ``Teams``, ``NetworkPolicies``."""
    plural = plural_of(kind)
    return kind + plural[len(kind) :] if plural.startswith(kind.lower()) else kind[:-1] + plural[len(kind) - 1 :]


def seconds_of(text: object) -> float | None:
    """Return a time in a status in seconds since the epoch; None if it isn't one, or if no clock can show it."""
    time = parse_time(text)
    return time.timestamp() if time is not None and _FIRST_YEAR <= time.year < _LAST_YEAR else None


def clock_text(seconds: float, now: float, zone: tzinfo = UTC) -> str:
    """Return a time as the clock shows it, with the date unless it is today: ``07:42``, ``2026-11-27 07:42``."""
    time, today = (datetime.fromtimestamp(each, zone) for each in (seconds, now))
    return f"{time:%H:%M}" if time.date() == today.date() else f"{time:%Y-%m-%d %H:%M}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHORT else text[:MAX_SHORT].rsplit(" ", 1)[0] + "…"


def _is(condition: Mapping[str, Any], status: str) -> bool:
    return bool(condition.get("status") == status)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(condition: Mapping[str, Any]) -> float | None:
    return seconds_of(condition.get("lastTransitionTime"))
