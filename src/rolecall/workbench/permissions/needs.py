"""What an operator needs: for the recorded requests of its runs, and for its own work by ``watches.yaml``.

What the files of a role or playbook say: its tasks with their places, and the names that it says literally.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.kube.references import GVK
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.record.access import ANY, OWN
from rolecall.workbench.permissions.manifests import Needs, RecordedAccess, RecordedUsage, Right

_TASK_FOLDERS = ("tasks", "handlers")
_BLOCKS = frozenset({"block", "rescue", "always"})
_KEYWORDS = frozenset({"name", "when", "vars", "register", "tags", "loop", "until", "become", "notify", "no_log"})
_COMPUTING = frozenset(
    {"assert", "debug", "fail", "meta", "pause", "requeue_after", "set_fact", "set_stats", "validate_argument_spec"}
)
"""Actions that ask the API server for nothing, by the last part of their names."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: its place below the content, such as ``tasks/main.yml:12``, its name, and the keys that it has."""

    place: str
    name: str
    keys: frozenset[str]

    @property
    def may_ask(self) -> bool:
        """Whether it may ask the API server for something."""
        names = {key.rpartition(".")[2] for key in self.keys - _KEYWORDS}
        return not names & _COMPUTING and not any(name.startswith(("include", "import")) for name in names)


@dataclass(frozen=True)
class ContentFiles:
    """The files of one role or playbook."""

    content: Content

    @property
    def base(self) -> Path:
        """The directory of the role, or that of the playbook."""
        path = self.content.path
        return path if isinstance(self.content, RoleContent) else path.parent

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks of the role, with its handlers, or of the playbook itself."""
        if not isinstance(self.content, RoleContent):
            return list(self._tasks_in(self.content.path))
        folders = [self.base / name for name in _TASK_FOLDERS]
        return [task for folder in folders for path in _yaml_files(folder) for task in self._tasks_in(path)]

    def says(self, name: str) -> bool:
        """Return whether a file has the name as a whole value, or a template has it as a word."""
        if name in self._values:
            return True
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
        return any(word.search(text) for text in self._templates)

    @cached_property
    def _values(self) -> set[str]:
        return {value for path in _yaml_files(self.base) for value in _scalars(_composed(path))}

    @cached_property
    def _templates(self) -> list[str]:
        return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(self.base.rglob("*.j2"))]

    def _tasks_in(self, path: Path) -> Iterator[Task]:
        for node in _task_nodes(_composed(path)):
            keys = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
            name = keys["name"].value if isinstance(keys.get("name"), ScalarNode) else ""
            yield Task(f"{path.relative_to(self.base)}:{node.start_mark.line + 1}", str(name), frozenset(keys))


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(path for pattern in ("*.yml", "*.yaml") for path in folder.rglob(pattern))


def _composed(path: Path) -> Node | None:
    """Return the nodes of a file; a file that is no YAML has none, and ``rolecall validate`` says why."""
    try:
        node: Node | None = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None
    return node


def _task_nodes(node: Node | None) -> Iterator[MappingNode]:
    """Yield the tasks in a list of tasks or of plays, at any depth of blocks."""
    for item in node.value if isinstance(node, SequenceNode) else ():
        if not isinstance(item, MappingNode):
            continue
        inner = {key.value: value for key, value in item.value if isinstance(key, ScalarNode)}
        lists = [inner[name] for name in ("pre_tasks", "tasks", "post_tasks", "handlers", *_BLOCKS) if name in inner]
        if not lists and "hosts" not in inner:
            yield item
        for below in lists:
            yield from _task_nodes(below)


def _scalars(node: Node | None) -> Iterator[str]:
    if isinstance(node, ScalarNode):
        yield str(node.value)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)


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
