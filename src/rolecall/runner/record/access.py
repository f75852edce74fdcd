"""The access set of a kind: the requests of its runs to the API server, and the tasks that sent them.

``rolecall rbac`` derives the rules for the operator from it, so it is kept as long as the operator runs. It contains
verbs, resources, names, and the files and lines of tasks, but no values. It omits names that are a secret value of the
run, and names beyond a limit for each resource and verb.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final

from rolecall.kube.bodies import MAX_INSPECTED_BYTES, decode, decompress, objects_in
from rolecall.kube.metadata import annotation_of, metadata_of, uid_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.made_for import PRUNE_ANNOTATION, is_prunable, marked_primary
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.record.run_record import KeptExchange, RunRecord

FORMAT: Final = 1
ANY: Final = "*"
"""Replaces a name if there are too many."""

OWN: Final = "."
"""Replaces the namespace of the primary."""

MAX_NAMES: Final = 50
_IMPERSONATED: Final = {"impersonate-user": "users", "impersonate-group": "groups", "impersonate-uid": "uids"}
_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """One kind of request that runs have sent."""

    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    name: str


@dataclass(slots=True)
class Usage:
    """The tasks that sent it, by file and line (empty for an unknown task), and up to two primaries."""

    tasks: set[str] = field(default_factory=set)
    primaries: set[str] = field(default_factory=set)
    is_forbidden: bool = False
    details: set[str] = field(default_factory=set)
    """For a binding, its roles."""


@dataclass(slots=True)
class AccessSet:
    """The access set of one kind."""

    gvk: GVK
    content: str
    usages: dict[Access, Usage] = field(default_factory=dict)
    dependents: set[tuple[str, str]] = field(default_factory=set)
    """The resources of objects with a primary as their owner."""
    prunable: set[tuple[str, str]] = field(default_factory=set)
    """The resources of written objects that the operator may prune: those with its mark, or opted in by the role."""
    blocks_deletion: bool = False
    """Whether runs have written owner references that block a primary's deletion."""
    exercised: set[str] = field(default_factory=set)
    """The tasks of the role or playbook that have run and weren't skipped, by file and line."""
    is_written: bool = False
    """Whether it has a file."""

    def add(self, record: RunRecord, hides: Callable[[str], bool] = lambda _: False) -> bool:
        """Add the requests of a run, and return whether any is new.

        ``hides`` returns whether a text contains a secret value of the run.
        """
        before = self._size
        hides = lru_cache(maxsize=None)(hides)
        places = {task.ident: task.path for task in record.tasks.values()}
        primary = _shown(str(record.key), hides)
        for kept in record.exchanges:
            exchange, info = kept.exchange, kept.exchange.info
            if exchange.status == HTTPStatus.NOT_FOUND and any(map(hides, (info.group, info.resource))):
                continue  # the API server has no such resource
            for access in self._accesses(exchange, record):
                shown = replace(access, namespace=_shown(access.namespace, hides), name=_shown(access.name, hides))
                usage = self.usages.setdefault(self._bounded(shown), Usage())
                usage.tasks.add(places.get(exchange.origin.task, ""))
                if len(usage.primaries) < _SEVERAL:
                    usage.primaries.add(primary)
                usage.is_forbidden |= exchange.status == HTTPStatus.FORBIDDEN
                if len(usage.details) < MAX_NAMES:
                    usage.details |= {detail for detail in _details(kept) if not hides(detail)}
            self._add_owned(record, kept)
        own = f"{self.directory}/"
        self.exercised |= {task.path for task in record.tasks.values() if task.has_run and task.path.startswith(own)}
        return self._size != before

    @property
    def directory(self) -> str:
        """The directory of the role, or that of the playbook."""
        return self.content.rpartition("/")[0] if self.content.endswith((".yml", ".yaml")) else self.content

    def to_json(self, plurals: Mapping[GVK, str]) -> dict[str, Any]:
        """Return the set as it is in its file, with the plural names of the kinds in the watch."""
        return {
            "format": FORMAT,
            "group": self.gvk.group,
            "version": self.gvk.version,
            "kind": self.gvk.kind,
            "content": self.content,
            "plurals": [[*astuple(gvk), plural] for gvk, plural in sorted(plurals.items())],
            "dependents": [list(each) for each in sorted(self.dependents)],
            "prunable": [list(each) for each in sorted(self.prunable)],
            "blocksDeletion": self.blocks_deletion,
            "exercised": sorted(self.exercised),
            "accesses": [
                {
                    **asdict(access),
                    **{name: sorted(getattr(usage, name)) for name in ("primaries", "tasks", "details")},
                    "refused": usage.is_forbidden,
                }
                for access, usage in sorted(self.usages.items(), key=itemgetter(0))
            ],
        }

    def _add_owned(self, record: RunRecord, kept: KeptExchange) -> None:
        """Add the owner references to the primary in a response, and what the operator may prune of it."""
        info, uid = kept.exchange.info, uid_of(record.obj)
        resource = (info.group, info.resource)
        if resource in self.dependents and (not info.is_write or (self.blocks_deletion and resource in self.prunable)):
            return  # nothing new, and the search takes time
        if not uid or kept.response is None or not kept.may_refer or not info.is_resource:
            return
        body = decompress(kept.response.content, MAX_INSPECTED_BYTES)
        for obj in objects_in(decode(body, kept.exchange.response_type)) if body and uid.encode() in body else ():
            references = metadata_of(obj).get("ownerReferences") or ()
            for reference in (each for each in references if each.get("uid") == uid):
                self.dependents.add(resource)
                self.blocks_deletion |= info.is_write and reference.get("blockOwnerDeletion") is True
            is_opted_in = annotation_of(obj, PRUNE_ANNOTATION) == "true"
            is_permitted = is_opted_in and is_prunable(info.group, str(obj.get("kind")), obj)
            if info.is_write and (is_permitted or marked_primary(obj, info.group) == uid):
                self.prunable.add(resource)

    @property
    def _size(self) -> int:
        inner = sum(len(each.tasks) + len(each.primaries) + len(each.details) for each in self.usages.values())
        flags = self.blocks_deletion + sum(each.is_forbidden for each in self.usages.values())
        return inner + flags + len(self.usages) + len(self.dependents) + len(self.prunable) + len(self.exercised)

    def _bounded(self, access: Access) -> Access:
        """Return the access with any name, if there are too many names."""
        if access in self.usages:
            return access
        alike = sum(astuple(known)[:4] == astuple(access)[:4] for known in self.usages)
        return access if alike < MAX_NAMES else replace(access, name=ANY)

    def _accesses(self, exchange: Exchange, record: RunRecord) -> Iterator[Access]:
        info = exchange.info
        for header, value in exchange.impersonated:
            if header.lower() in _IMPERSONATED:
                yield Access("", _IMPERSONATED[header.lower()], "", "impersonate", "", value)
        if not info.is_resource:
            return
        found = info.key.namespace
        namespace = OWN if found and found == record.key.namespace else found
        base = (info.group, info.resource, info.subresource)
        yield Access(*base, info.verb, namespace, info.name)
        if info.verb == "patch" and exchange.status == HTTPStatus.CREATED:
            yield Access(*base, "create", namespace, "")


def _shown(text: str, hides: Callable[[str], bool]) -> str:
    return ANY if hides(text) else text


def _details(kept: KeptExchange) -> Iterator[str]:
    """Yield the role that a request for a binding grants."""
    exchange = kept.exchange
    if exchange.info.group != "rbac.authorization.k8s.io" or kept.body is None:
        return
    obj: RawObject | None = decode(kept.body.content, exchange.content_type)
    if isinstance(obj, dict) and (given := obj.get("roleRef")):
        yield json.dumps(given, sort_keys=True)
