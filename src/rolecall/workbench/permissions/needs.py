"""What an operator needs: for the recorded requests of its runs, and for its own work by ``watches.yaml``."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rolecall.kube.references import GVK
from rolecall.runner.config.watches import Watch
from rolecall.runner.record.access import ANY, OWN
from rolecall.workbench.permissions.access_files import RecordedAccess, RecordedUsage
from rolecall.workbench.permissions.contents import ContentFiles
from rolecall.workbench.permissions.rights import Needs, Right

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_SEVERAL: Final = 2
_NAMELESS: Final = frozenset({"create", "deletecollection"})
_STREAMS: Final = frozenset({"exec", "attach", "portforward", "proxy"})
_READS: Final = frozenset({"get", "list", "watch"})
_NEVER_WATCHED: Final = frozenset({("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")})
_CHANGES: Final = frozenset({"update", "patch"})
_GROUP_OF_EVERYBODY: Final = "authorization.k8s.io"
"""Everybody may ask for their own rights."""


@dataclass(frozen=True, slots=True)
class Source:
    """A kind: its watch, what was recorded of it, and its files; ``recorded`` is None if none of its runs was."""

    watch: Watch
    recorded: RecordedAccess | None
    files: ContentFiles

    def relative(self, place: str) -> str:
        """Return the place of a task below the role or the playbook's directory."""
        if self.recorded is None:
            return place
        content = self.recorded.content
        base = content.parent if content.suffix in (".yml", ".yaml") else content
        return place.removeprefix(f"{base}/")

    def unexercised(self) -> list[str]:
        """Return the tasks that may ask for something and that no recorded run has taken."""
        taken = {self.relative(place) for place in self.recorded.exercised} if self.recorded else set()
        return [f"{task.place}: {task.name}" for task in self.files.tasks if task.may_ask and task.place not in taken]


def sources_of(watches: Iterable[Watch], recorded: Iterable[RecordedAccess]) -> list[Source]:
    """Return the watches with what was recorded of each."""
    by_kind = {each.gvk: each for each in recorded}
    return [Source(watch, by_kind.get(watch.gvk), ContentFiles(watch.content)) for watch in watches]


@dataclass(frozen=True, slots=True)
class Election:
    """The Lease by which replicas elect a leader; with shards, more Leases beside it, with names that nobody knows."""

    namespace: str
    name: str
    has_shards: bool = False

    def rights(self) -> Iterator[Right]:
        """Yield what a replica does with Leases."""
        names = () if self.has_shards else (self.name,)
        yield self._right("create")
        for verb in ("get", "update"):
            yield self._right(verb, names)
        for verb in ("list", "delete") if self.has_shards else ():
            yield self._right(verb)

    def _right(self, verb: str, names: tuple[str, ...] = ()) -> Right:
        return Right(self.namespace, "coordination.k8s.io", "leases", verb, names)


def needs_of(sources: Iterable[Source], election: Election | None = None) -> Needs:
    """Return what the operator needs, without ``election`` as the only replica."""
    needs = Needs()
    plurals: dict[GVK, str] = {}
    for source in sources:
        plurals |= source.recorded.plurals if source.recorded else {}
        for right, reason in _of_operator(source, plurals):
            needs.add(right, reason)
        for right, reason in _of_runs(source):
            needs.add(right, reason)
        for right in _of_watched_reads(source, plurals):
            needs.add(right, f"the operator: {source.watch.gvk.kind}, reads")
    needs.add(Right("", "", "events", "create"), "the operator: Events")
    needs.add(Right("", "", "events", "patch"), "the operator: Events")
    if election is not None:
        reason = "the operator: shards" if election.has_shards else "the operator: leader election"
        for right in election.rights():
            needs.add(right, reason)
    return needs


def plural_of(gvk: GVK, plurals: dict[GVK, str]) -> str:
    """Return the plural name of a kind: as it was recorded, or else by the rule for English nouns."""
    if gvk in plurals:
        return plurals[gvk]
    singular = gvk.kind.lower()
    if singular.endswith(("s", "x", "ch", "sh")):
        return f"{singular}es"
    return (
        f"{singular.removesuffix('y')}ies" if singular.endswith("y") and singular[-2] not in "aeiou" else f"{singular}s"
    )


def _of_operator(source: Source, plurals: dict[GVK, str]) -> Iterator[tuple[Right, str]]:
    """Yield what the operator itself needs for a kind."""
    watch, recorded = source.watch, source.recorded
    group, plural = watch.gvk.group, plural_of(watch.gvk, plurals)
    who = f"the operator: {watch.gvk.kind}"
    for verb in ("get", "list", "watch"):
        yield Right("", group, plural, verb), who
    if watch.manage_status:
        yield Right("", group, f"{plural}/status", "update"), f"{who}, status"
    if watch.finalizer:
        yield Right("", group, plural, "update"), f"{who}, finalizer"
    for trigger in watch.triggers:
        for verb in ("list", "watch"):
            yield Right("", trigger.gvk.group, plural_of(trigger.gvk, plurals), verb), f"{who}, triggers"
    if recorded is None:
        return
    ignored = {(gvk.group, plural_of(gvk, plurals)) for gvk in watch.blacklist}
    for dependent in recorded.dependents if watch.watch_dependent_resources else ():
        for verb in ("list", "watch") if dependent not in ignored else ():
            yield Right("", *dependent, verb), f"{who}, dependents"
    if recorded.blocks_deletion:
        yield Right("", group, f"{plural}/finalizers", "update"), f"{who}, owner references that block deletion"


def _of_runs(source: Source) -> Iterator[tuple[Right, str]]:
    """Yield what the runs of a kind need."""
    usages = source.recorded.usages if source.recorded else ()
    named = _resources_with_fixed_names(source, usages)
    for usage in usages:
        if usage.access.group == _GROUP_OF_EVERYBODY:
            continue
        for right in _rights_of(source, usage, is_named=_name_key(usage) in named):
            for task in usage.tasks or ("",):
                yield right, f"{source.watch.gvk.kind}: {_task_text(source, task)}"


def _of_watched_reads(source: Source, plurals: dict[GVK, str]) -> Iterator[Right]:
    """Yield what the operator needs to watch what the runs of a kind have read."""
    watch = source.watch
    if not watch.watch_reads or source.recorded is None:
        return
    others = {trigger.gvk for trigger in watch.triggers} | watch.blacklist
    ignored = {(gvk.group, plural_of(gvk, plurals)) for gvk in others} | _NEVER_WATCHED
    named = _resources_with_fixed_names(source, source.recorded.usages)
    for usage in source.recorded.usages:
        access = usage.access
        if access.verb not in _READS or access.subresource or (access.group, access.resource) in ignored:
            continue
        for right in _rights_of(source, usage, is_named=_name_key(usage) in named):
            for verb in ("list", "watch"):
                yield replace(right, verb=verb)


def _task_text(source: Source, place: str) -> str:
    relative = source.relative(place)
    names = {task.place: task.name for task in source.files.tasks}
    name = names.get(relative, "")
    return f"{name} ({relative})" if name else relative or "a task that is not known"


def _name_key(usage: RecordedUsage) -> tuple[str, str, str, str, str]:
    access = usage.access
    return access.group, access.resource, access.subresource, access.verb, access.namespace


def _resources_with_fixed_names(source: Source, usages: Iterable[RecordedUsage]) -> set[tuple[str, str, str, str, str]]:
    """Return what was asked for under fixed names only."""
    every, loose = set(), set()
    for usage in usages:
        every.add(_name_key(usage))
        if not _is_fixed(source, usage, usage.access.name):
            loose.add(_name_key(usage))
    return every - loose


def _is_fixed(source: Source, usage: RecordedUsage, text: str) -> bool:
    """Return whether a name is the same for every object: several have asked for it, or the role says it."""
    if text in ("", ANY):
        return False
    return len(usage.primaries) >= _SEVERAL or source.files.says(text)


def _rights_of(source: Source, usage: RecordedUsage, *, is_named: bool) -> Iterator[Right]:
    access = usage.access
    namespace = access.namespace
    is_fixed = namespace not in ("", OWN) and _is_fixed(source, usage, namespace)
    place = namespace if is_fixed else ""
    names = (access.name,) if is_named and access.verb not in _NAMELESS else ()
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    yield Right(place, access.group, resource, access.verb, names)
    if access.subresource in _STREAMS:
        yield Right(place, access.group, resource, "create", names)
    if access.verb in _CHANGES:  # the proxy reads the object before
        yield Right(place, access.group, access.resource, "get", names)
    if access.group == RBAC_GROUP and access.verb in _CHANGES | {"create"}:
        yield from _of_escalation(access.resource, place, usage)


def _of_escalation(resource: str, place: str, usage: RecordedUsage) -> Iterator[Right]:
    """Yield what giving rights away takes, unless the operator has these rights itself."""
    if resource in ("roles", "clusterroles"):
        yield Right(place, RBAC_GROUP, resource, "escalate")
    elif resource in ("rolebindings", "clusterrolebindings"):
        for detail in usage.details:
            role = json.loads(detail)
            if isinstance(role, dict):
                yield Right(place, RBAC_GROUP, f"{str(role.get('kind', 'Role')).lower()}s", "bind", (role["name"],))
