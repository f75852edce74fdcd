"""The objects of the watched kinds as the API server has them, for ``rolecall status``: no operator has to run.

The kinds are those of a watches file or, without one, all kinds of CRDs with a condition that an operator has written.
Each object is reduced to its state when its page arrives, so that a list of ten thousand objects takes little memory. A
kind that can't be read is a problem, and doesn't keep the others from being read.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rolecall.kube.client import Client, is_partial
from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.kube.errors import ApiError, ForbiddenError, GoneError, KubeError, UnreachableError
from rolecall.kube.failures import FailureGroup, ObjectState, State, failures_of, groups_of, state_of
from rolecall.kube.metadata import annotation_of, labels_of, metadata_of, status_of
from rolecall.kube.quantities import parse_non_negative_duration, parse_time
from rolecall.kube.readiness import Readiness, verdict_on
from rolecall.kube.references import GVK, ObjectKey, RawObject, plural_of
from rolecall.runner.config.watches import WatchedKind
from rolecall.runner.reconcile.context import PERIOD_ANNOTATION
from rolecall.runner.reconcile.proposals import Proposal, proposal_of
from rolecall.runner.reconcile.status import (
    FAILURE,
    REFRESH_AFTER,
    RUNNING,
    SUCCESSFUL,
    completion_of,
    own_condition,
)

MAX_CONCURRENT_LISTS: Final = 8
_MAX_ATTEMPTS: Final = 3
"""How often a list is started whose continue token expires."""

_UNAUTHORIZED: Final = 401
_LATE: Final = REFRESH_AFTER + timedelta(minutes=1)
"""A status that differs in its times only is written that much later, so a run may be that much newer."""

_STATES: Final = {
    Readiness.READY: State.READY,
    Readiness.NOT_READY: State.NOT_READY,
    Readiness.FAILED: State.FAILING,
    Readiness.DELETING: State.DELETING,
    Readiness.UNKNOWN: State.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class FleetObject:
    """An object's state, when it was created, and when its next run is due at the latest, if this is known.

    Times are in seconds since the epoch. A next run in the past is overdue: no operator seems to run. ``proposal`` are
    the deletions that prune proposes to a person.
    """

    state: ObjectState
    created: float | None = None
    next_run: float | None = None
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind whose objects can't be listed, and why."""

    gvk: GVK
    reason: str
    is_forbidden: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """The objects of several kinds, failing ones first, the groups of their failures, and the unreadable kinds."""

    kinds: tuple[GVK, ...]
    objects: tuple[FleetObject, ...]
    groups: tuple[FailureGroup, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Listed:
    """The objects of a kind, and whether an operator has written a condition of one of them; or why there are none."""

    kind: WatchedKind
    objects: tuple[FleetObject, ...] = ()
    is_operated: bool = False
    problem: Problem | None = None


def is_kind(text: str, gvk: GVK) -> bool:
    """Return whether a text names a kind as kubectl would interpret it: kind or plural, with or without the group."""
    suffixes = ("", f".{gvk.group}", f".{gvk.version}.{gvk.group}") if gvk.group else ("",)
    return text.lower() in {name + suffix for name in (gvk.kind.lower(), plural_of(gvk.kind)) for suffix in suffixes}


async def served_kinds(client: Client) -> tuple[WatchedKind, ...]:
    """Return the kinds of all CRDs with a status, in the preferred version of each. Raise KubeError."""
    served = await AggregatedDiscovery(client).changed()
    kinds = []
    for group, versions in (served.groups if served is not None else {}).items():
        found = next(((version, resources) for version, resources in versions.items() if resources), None)
        version, resources = found or ("", [])
        names = {each["name"] for each in resources}
        for each in resources:
            gvk = GVK(group, version, str(each.get("kind")))
            is_listed = "list" in (each.get("verbs") or ()) and f"{each['name']}/status" in names
            if is_listed and not gvk.is_built_in:
                kinds.append(WatchedKind(gvk))
    return tuple(kinds)


async def read_fleet(
    client: Client,
    kinds: Collection[WatchedKind],
    namespaces: Sequence[str],
    now: float,
    *,
    only_operated: bool = False,
) -> Fleet:
    """Return the objects of kinds in some namespaces, or in all; objects of cluster-scoped kinds are always included.

    With ``only_operated``, kinds are left out without an object that an operator has written a condition of. Raise
    KubeError if the API server can't be reached, or doesn't accept the credentials.
    """
    slots = asyncio.Semaphore(MAX_CONCURRENT_LISTS)

    async def listed(kind: WatchedKind) -> _Listed:
        async with slots:
            return await _list(client, kind, namespaces, now)

    found = await asyncio.gather(*map(listed, kinds))
    shown = [each for each in found if each.problem is None and (each.is_operated or not only_operated)]
    objects = [obj for each in shown for obj in each.objects]
    totals = Counter(each.state.gvk for each in objects)
    groups = groups_of(failures_of(each.state for each in objects), totals)
    return Fleet(
        tuple(each.kind.gvk for each in shown),
        tuple(_sorted(objects, groups)),
        tuple(groups),
        tuple(each.problem for each in found if each.problem is not None),
    )


def _sorted(objects: Iterable[FleetObject], groups: Iterable[FailureGroup]) -> list[FleetObject]:
    """Return objects by state, failing ones in the order of their groups, then by kind and name."""
    states = {state: number for number, state in enumerate(State)}
    places = {(group.gvk, key): number for number, group in enumerate(groups) for key in group.keys}

    def place(each: FleetObject) -> tuple[int, int, GVK, ObjectKey]:
        state = each.state
        return states[state.state], places.get((state.gvk, state.key), 0), state.gvk, state.key

    return sorted(objects, key=place)


async def _list(client: Client, kind: WatchedKind, namespaces: Sequence[str], now: float) -> _Listed:
    try:
        resource = await client.resource(kind.gvk)
        scopes = namespaces if namespaces and resource.namespaced else ("",)
        found, is_operated = list[FleetObject](), False
        for namespace in scopes:
            objects, has_condition = await _list_in(client, kind, namespace, now)
            found += objects.values()
            is_operated |= has_condition
        return _Listed(kind, tuple(found), is_operated)
    except UnreachableError:
        raise
    except KubeError as error:
        if isinstance(error, ApiError) and error.status == _UNAUTHORIZED:
            raise
        reason = error.message if isinstance(error, ForbiddenError) else str(error)
        return _Listed(kind, problem=Problem(kind.gvk, reason, isinstance(error, ForbiddenError)))


async def _list_in(
    client: Client, kind: WatchedKind, namespace: str, now: float
) -> tuple[dict[ObjectKey, FleetObject], bool]:
    for attempt in range(_MAX_ATTEMPTS):
        found, is_operated = dict[ObjectKey, FleetObject](), False
        try:
            async for page, _ in client.list_pages(kind.gvk, namespace):
                for obj in page:
                    if kind.selector.matches(labels_of(obj)):
                        found[ObjectKey.of_object(obj)] = object_of(obj, kind, now)
                        is_operated |= _has_own_condition(obj)
        except GoneError:
            if attempt == _MAX_ATTEMPTS - 1:
                raise
        else:
            break
    return found, is_operated


def _has_own_condition(obj: RawObject) -> bool:
    status = status_of(obj)
    return any(own_condition(status, name) for name in (RUNNING, SUCCESSFUL, FAILURE))


def object_of(obj: RawObject, kind: WatchedKind, now: float) -> FleetObject:
    """Return the state of an object of a kind: from the operator's conditions, if it writes them."""
    created = parse_time(metadata_of(obj).get("creationTimestamp"))
    whole = {**obj, "apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind}
    state = state_of(whole)
    if is_partial(obj):
        state = replace(state, state=State.UNKNOWN, message="it can't be read: too long, or nested too deeply")
    elif not kind.manage_status or kind.gvk.is_built_in:
        verdict = verdict_on(kind.gvk, obj, now)
        state = replace(state, state=_STATES[verdict.readiness], reason=verdict.reason, message=verdict.message)
    due = _next_run(obj, kind, now) if state.state is State.READY else None
    return FleetObject(state, None if created is None else created.timestamp(), due, proposal_of(obj))


def _next_run(obj: RawObject, kind: WatchedKind, now: float) -> float | None:
    """Return when the run after the period is due, None if the period isn't known, or off."""
    seconds, completed = _period_seconds(obj, kind), completion_of(status_of(obj))
    if not seconds or completed is None:
        return None
    due = completed.timestamp() + seconds
    if due <= now < due + _LATE.total_seconds():  # the status of the last run wasn't worth a write
        due += seconds * ((now - due) // seconds + 1)
    return due


def _period_seconds(obj: RawObject, kind: WatchedKind) -> float | None:
    text = annotation_of(obj, PERIOD_ANNOTATION)
    if text is None:
        return kind.reconcile_period_seconds
    try:
        return parse_non_negative_duration(text)
    except ValueError:
        return None
