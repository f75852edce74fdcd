"""The permissions that an operator needs: for the recorded requests of its runs, and for its own work.

The access sets that ``rolecall run --record-dir`` writes have the requests. The files of a role or playbook have the
tasks, with their locations, and the names that they contain literally: a name is fixed if it is among them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rolecall.kube.references import GVK, plural_of
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy.made_for import PRUNED_KINDS
from rolecall.runner.record.access import ANY, FORMAT, OWN, Access, AccessSet, Usage
from rolecall.runner.record.files import ACCESS
from rolecall.runner.runs.events import PRUNE_ACTION
from rolecall.workbench.permissions.manifests import Permission, RbacError, missing
from rolecall.workbench.yaml_files import yaml_files

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_MIN_PRIMARIES: Final = 2
"""A name is fixed if so many primaries have used it."""
_NAMELESS: Final = frozenset({"create", "deletecollection"})
_STREAMS: Final = frozenset({"exec", "attach", "portforward", "proxy"})
_READS: Final = frozenset({"get", "list", "watch"})
_NEVER_WATCHED: Final = frozenset({("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")})
_CHANGES: Final = frozenset({"update", "patch"})
_GROUP_FOR_EVERYONE: Final = "authorization.k8s.io"
"""Every account is permitted to query its own permissions."""
_REVIEWS: Final = (("authentication.k8s.io", "tokenreviews"), (_GROUP_FOR_EVERYONE, "subjectaccessreviews"))
_SHOWN_BY_DASHBOARD: Final = (("", "events"), ("", "pods"), ("apps", "replicasets"), ("batch", "jobs"))
_TASK_DIRECTORIES: Final = ("tasks", "handlers")
_LISTS_OF_TASKS: Final = ("pre_tasks", "tasks", "post_tasks", "handlers", "block", "rescue", "always")
_KEYWORDS: Final = frozenset(
    {"name", "when", "vars", "register", "tags", "loop", "until", "become", "notify", "no_log"}
)
_COMPUTING: Final = frozenset(
    {
        *("assert", "debug", "fail", "meta", "pause", "prune", "requeue_after", "set_fact", "set_stats"),
        "validate_argument_spec",
    }
)
"""Actions that send no request to the API server, by the last part of their names."""


@dataclass(slots=True)
class RecordedAccess(AccessSet):
    """The access set of one kind, as it was recorded, and the plural names of the kinds in its watch."""

    plurals: dict[GVK, str] = field(default_factory=dict)


def read_access_sets(directory: Path) -> list[RecordedAccess]:
    """Read all access sets of a record directory. Raises RbacError if there is none, or one that cannot be read."""
    paths = sorted((directory / ACCESS).glob("*.json"))
    if not paths:
        hint = "start the operator with 'rolecall run --record-dir' and let every task of its roles run"
        raise RbacError(f"{directory / ACCESS}: found no access set: {hint}")
    return [_read_access_set(path) for path in paths]


def _read_access_set(path: Path) -> RecordedAccess:
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = raw["format"]
        if isinstance(found, int) and found > FORMAT:
            raise RbacError(f"{path}: the access set has format {found}; this rolecall reads formats up to {FORMAT}")
        recorded = RecordedAccess(
            GVK(raw["group"], raw["version"], raw["kind"]),
            str(raw["content"]),
            dependents={(group, resource) for group, resource in raw["dependents"]},
            prunable={(group, resource) for group, resource in raw.get("prunable", ())},
            blocks_deletion=raw["blocksDeletion"],
            exercised=set(raw["exercised"]),
            plurals={GVK(group, version, kind): plural for group, version, kind, plural in raw["plurals"]},
        )
        for each in raw["accesses"]:
            access = Access(*(str(each[name.name]) for name in fields(Access)))
            usage = Usage(set(each["tasks"]), set(each["primaries"]), details=set(each["details"]))
            recorded.usages[access] = usage
    except OSError as error:
        raise RbacError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RbacError(f"{path}: not a whole access set ({error!r}): remove the file and record again") from error
    return recorded


@dataclass(frozen=True, slots=True)
class Task:
    """A task: its location below the content, such as ``tasks/main.yml:12``, its name, and its keys."""

    location: str
    name: str
    keys: frozenset[str]

    @property
    def may_send_requests(self) -> bool:
        """Whether it may send a request to the API server."""
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
        """The tasks and handlers of the role, or those of the playbook itself."""
        paths = [self.content.path]
        if isinstance(self.content, RoleContent):
            paths = list(yaml_files(*(self.base / name for name in _TASK_DIRECTORIES)))
        found = []
        for path in paths:
            for node in _task_nodes(_composed(path)):
                keys = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
                name = str(keys["name"].value) if isinstance(keys.get("name"), ScalarNode) else ""
                location = f"{path.relative_to(self.base)}:{node.start_mark.line + 1}"
                found.append(Task(location, name, frozenset(keys)))
        return found

    @cached_property
    def prunes(self) -> bool:
        """Whether the content, or a role that a playbook names, has the task ``rolecall.util.prune``."""
        paths = list(yaml_files(self.base))
        if not isinstance(self.content, RoleContent):
            roles = (each for parent in (self.base, self.base.parent) for each in parent.glob("roles/*"))
            texts = {text.rpartition("/")[2] for text in _scalars(_composed(self.content.path))}  # a role can be a path
            named = [each for each in roles if each.name in texts]
            paths = [self.content.path, *yaml_files(*(each / _TASK_DIRECTORIES[0] for each in named))]
        tasks = (task for path in paths for task in _task_nodes(_composed(path)))
        return any(key.value == PRUNE_ACTION for task in tasks for key, _ in task.value)

    def has_name(self, name: str) -> bool:
        """Return whether a file has the name as a whole value, or a template has it as a word."""
        if name in self._values:
            return True
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
        return any(word.search(text) for text in self._templates)

    @cached_property
    def _values(self) -> set[str]:
        return {value for path in yaml_files(self.base) for value in _scalars(_composed(path))}

    @cached_property
    def _templates(self) -> list[str]:
        return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(self.base.rglob("*.j2"))]


def _composed(path: Path) -> Node | None:
    """Return the nodes of a file; a file that is not YAML has none, which ``rolecall validate`` reports."""
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
        lists = [inner[name] for name in _LISTS_OF_TASKS if name in inner]
        if not lists and "hosts" not in inner:
            yield item
        for below in lists:
            yield from _task_nodes(below)


def _scalars(node: Node | None) -> Iterator[str]:
    if isinstance(node, ScalarNode):
        yield str(node.value)
    elif isinstance(node, SequenceNode | MappingNode):
        for item in node.value:
            for each in item if isinstance(item, tuple) else (item,):
                yield from _scalars(each)


@dataclass(frozen=True, slots=True)
class Source:
    """A kind: its watch, its recorded access, and its files; ``recorded`` is None if none of its runs was recorded.

    ``namespace`` is the only one in which the operator watches the kind, empty for all.
    """

    watch: Watch
    recorded: RecordedAccess | None
    files: ContentFiles
    namespace: str = ""

    def relative(self, location: str) -> str:
        """Return the location of a task below the directory of the role or playbook."""
        return location.removeprefix(f"{self.recorded.directory}/") if self.recorded else location

    def unexercised(self) -> list[str]:
        """Return the tasks that may send requests and that no recorded run has executed."""
        done = {self.relative(each) for each in self.recorded.exercised} if self.recorded else set()
        tasks = (task for task in self.files.tasks if task.may_send_requests and task.location not in done)
        return [f"{task.location}: {task.name}" for task in tasks]

    def has_fixed(self, text: str, usage: Usage) -> bool:
        """Return whether a name is the same for every object: several have used it, or the files contain it."""
        if text in ("", ANY):
            return False
        return len(usage.primaries) >= _MIN_PRIMARIES or self.files.has_name(text)


def sources_of(watches: Iterable[Watch], recorded: Iterable[RecordedAccess]) -> list[Source]:
    """Return the watches with the recorded access of each."""
    by_kind = {each.gvk: each for each in recorded}
    return [Source(watch, by_kind.get(watch.gvk), ContentFiles(watch.content)) for watch in watches]


def limited(sources: Iterable[Source], granted: Iterable[Permission]) -> list[Source]:
    """Return the sources, those in one namespace whose kinds the permissions name only there."""
    namespaces: dict[tuple[str, str], set[str]] = {}
    for each in granted:
        namespaces.setdefault((each.group, each.resource), set()).add(each.namespace)
    found = list(sources)
    plurals = plurals_of(found)
    return [
        replace(source, namespace=next(iter(where)) if len(where) == 1 else "")
        for source in found
        for where in [namespaces.get((source.watch.gvk.group, resource_of(source.watch.gvk, plurals)), set())]
    ]


@dataclass(frozen=True, slots=True)
class Election:
    """The Lease by which replicas elect a leader; with shards, there are more Leases, whose names are unknown."""

    namespace: str
    name: str
    has_shards: bool = False

    def needs(self) -> Iterator[tuple[Permission, str]]:
        """Yield the permissions for a replica's requests for Leases."""
        reason = f"the operator: {'shards' if self.has_shards else 'leader election'}"
        names = () if self.has_shards else (self.name,)
        verbs = [("create", ()), ("get", names), ("update", names)]
        verbs += [("list", ()), ("delete", ())] if self.has_shards else []
        for verb, limited_to in verbs:
            yield Permission(self.namespace, "coordination.k8s.io", "leases", verb, limited_to), reason


def needs_of_settings(settings: Settings, namespace: str) -> Iterator[tuple[Permission, str]]:
    """Yield the permissions that an operator in a namespace needs because of its flags."""
    if settings.leader_elect:
        namespace = settings.leader_election_namespace or namespace
        yield from Election(namespace, settings.leader_election_id, bool(settings.shards)).needs()
    if settings.metrics_require_rbac:
        for group, resource in _REVIEWS:
            yield Permission("", group, resource, "create"), "the operator: --metrics-require-rbac"
    if settings.has_ui:
        for group, resource in _SHOWN_BY_DASHBOARD:
            yield Permission("", group, resource, "list"), "the operator: dashboard"


@dataclass(slots=True)
class FlagNeeds:
    """What the flags of the operators in a project's manifests need, and what the roles in these manifests grant."""

    namespace: str = ""
    """The namespace of the first operator, empty without one."""

    needs: list[tuple[Permission, str]] = field(default_factory=list)
    granted: list[Permission] = field(default_factory=list)

    @property
    def permissions(self) -> frozenset[Permission]:
        """The needed permissions."""
        return frozenset(permission for permission, _ in self.needs)

    def lacking(self, needed: Iterable[Permission], granted: Iterable[Permission]) -> list[Permission]:
        """Return the needed permissions that aren't granted; those for flags may be granted anywhere in the project."""
        granted = list(granted)
        wider, found = [*granted, *self.granted], missing(needed, granted)
        return [each for each in found if each not in self.permissions or missing([each], wider)]


def needs_of(
    sources: Iterable[Source], election: Election | None = None, plurals: Mapping[GVK, str] | None = None
) -> Iterator[tuple[Permission, str]]:
    """Yield the permissions that the operator needs, each with a reason; without ``election`` for a single replica.

    ``plurals`` are names that other sources have recorded.
    """
    plurals, namespaces = dict(plurals or {}), set[str]()
    for source in sources:
        namespaces.add(source.namespace)
        plurals |= source.recorded.plurals if source.recorded else {}
        yield from _needs_of_operator(source, plurals)
        if source.recorded is not None:
            yield from _needs_of_runs(source, source.recorded, plurals)
    for namespace in sorted(namespaces or {""}):
        for verb in ("create", "patch"):
            yield Permission(namespace, "", "events", verb), "the operator: Events"
    if election is not None:
        yield from election.needs()


def plurals_of(sources: Iterable[Source]) -> dict[GVK, str]:
    """Return the plural names that sources have recorded."""
    return {gvk: name for each in sources if each.recorded for gvk, name in each.recorded.plurals.items()}


def resource_of(gvk: GVK, plurals: Mapping[GVK, str]) -> str:
    """Return the plural name of a kind: the recorded one, or else by the rule for English nouns."""
    return plurals.get(gvk) or plural_of(gvk.kind)


def _needs_of_operator(source: Source, plurals: dict[GVK, str]) -> Iterator[tuple[Permission, str]]:
    """Yield the permissions for the operator's own requests."""
    watch, recorded = source.watch, source.recorded
    group, plural = watch.gvk.group, resource_of(watch.gvk, plurals)
    reason = f"the operator: {watch.gvk.kind}"
    reads = ("list", "watch")
    wanted: list[tuple[tuple[str, str], tuple[str, ...], str]] = [((group, plural), ("get", *reads), "")]
    if watch.manage_status:
        wanted.append(((group, f"{plural}/status"), ("update",), ", status"))
    if watch.finalizer:
        wanted.append(((group, plural), ("update",), ", finalizer"))
    triggers = [each.gvk for each in watch.triggers]
    wanted += [((gvk.group, resource_of(gvk, plurals)), reads, ", triggers") for gvk in triggers]
    if recorded and watch.watch_dependent_resources:
        ignored = {(gvk.group, resource_of(gvk, plurals)) for gvk in watch.blacklist}
        wanted += [(each, reads, ", dependents") for each in sorted(recorded.dependents) if each not in ignored]
    if recorded and source.files.prunes:
        by_default = recorded.dependents & {(gvk_group, plural_of(kind)) for gvk_group, kind in PRUNED_KINDS}
        wanted.append(((group, plural), ("patch",), ", prune"))  # for the inventory
        # "patch" is for the mark: after a creation by apply or PUT, and its removal from objects that others share.
        wanted += [(each, ("get", "delete", "patch"), ", prune") for each in sorted(by_default | recorded.prunable)]
    if recorded and recorded.blocks_deletion:
        wanted.append(((group, f"{plural}/finalizers"), ("update",), ", owner references that block deletion"))
    for (group_of_resource, resource), verbs, purpose in wanted:
        for verb in verbs:
            yield Permission(source.namespace, group_of_resource, resource, verb), f"{reason}{purpose}"


def _needs_of_runs(
    source: Source, recorded: RecordedAccess, plurals: dict[GVK, str]
) -> Iterator[tuple[Permission, str]]:
    """Yield the permissions for the requests of runs, and for watching the objects that they read."""
    watch, kind = source.watch, source.watch.gvk.kind
    others = {trigger.gvk for trigger in watch.triggers} | watch.blacklist
    ignored = {(gvk.group, resource_of(gvk, plurals)) for gvk in others} | _NEVER_WATCHED
    task_names = {task.location: task.name for task in source.files.tasks}
    usages = recorded.usages.items()
    loose = {replace(access, name="") for access, usage in usages if not source.has_fixed(access.name, usage)}
    for access, usage in usages:
        permissions = list(_permissions_for(source, access, usage, is_named=replace(access, name="") not in loose))
        for permission in permissions if access.group != _GROUP_FOR_EVERYONE else ():
            for location in map(source.relative, sorted(usage.tasks) or [""]):
                name = task_names.get(location, "")
                yield permission, f"{kind}: {f'{name} ({location})' if name else location or 'an unknown task'}"
        is_watched = watch.watch_reads and access.verb in _READS and not access.subresource
        if is_watched and (access.group, access.resource) not in ignored:
            for permission in permissions:
                for verb in ("list", "watch"):
                    yield replace(permission, verb=verb), f"the operator: {kind}, reads"


def _permissions_for(source: Source, access: Access, usage: Usage, *, is_named: bool) -> Iterator[Permission]:
    is_fixed = access.namespace not in ("", OWN) and source.has_fixed(access.namespace, usage)
    namespace = access.namespace if is_fixed else source.namespace if access.namespace == OWN else ""
    names = (access.name,) if is_named and access.verb not in _NAMELESS else ()
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    yield Permission(namespace, access.group, resource, access.verb, names)
    if access.subresource in _STREAMS:
        yield Permission(namespace, access.group, resource, "create", names)
    if access.verb in _CHANGES:  # the proxy reads the object before
        yield Permission(namespace, access.group, access.resource, "get", names)
    if access.group == RBAC_GROUP and access.verb in _CHANGES | {"create"}:
        # An account that grants permissions must have them itself, or escalate and bind.
        if access.resource in ("roles", "clusterroles"):
            yield Permission(namespace, RBAC_GROUP, access.resource, "escalate")
        elif access.resource in ("rolebindings", "clusterrolebindings"):
            for role in map(json.loads, sorted(usage.details)):
                if isinstance(role, dict):
                    plural = f"{str(role.get('kind', 'Role')).lower()}s"
                    yield Permission(namespace, RBAC_GROUP, plural, "bind", (role["name"],))
