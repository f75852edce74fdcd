"""Rules as Kubernetes manifests: written with the reasons for each rule, and read back for a comparison.

A right, as a rule of RBAC grants it, and which rights cover which.

Reads the access sets that ``rolecall run --record-dir`` has written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rolecall.kube.references import GVK
from rolecall.runner.record.access import FORMAT, Access
from rolecall.runner.record.files import ACCESS

EVERYTHING = "*"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource (``pods/exec`` for a subresource); ``namespace`` is empty for every namespace.

    ``names`` are the objects to which it is limited; empty means all.
    """

    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the right as people say it: ``patch deployments.apps``."""
        plural, _, sub = self.resource.partition("/")
        resource = f"{plural}.{self.group}" if self.group else plural
        names = f" ({', '.join(self.names)})" if self.names else ""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{'/' + sub if sub else ''}{names}{place}"

    def covers(self, other: "Right") -> bool:
        """Return whether who has this right has the other."""
        return self.is_about(other) and (not self.names or (bool(other.names) and set(other.names) <= set(self.names)))

    def is_about(self, other: "Right") -> bool:
        """Return whether this right covers the other, apart from names."""
        return (
            self.namespace in ("", other.namespace)
            and self.group in (EVERYTHING, other.group)
            and self.verb in (EVERYTHING, other.verb)
            and _covers_resource(self.resource, other.resource)
        )


@dataclass(slots=True)
class Needs:
    """Rights that are needed, each with its reasons."""

    reasons: dict[Right, set[str]] = field(default_factory=dict)

    def add(self, right: Right, reason: str) -> None:
        """Add a right with one reason."""
        self.reasons.setdefault(right, set()).add(reason)

    def minimal(self) -> dict[Right, set[str]]:
        """Return the rights without those that others cover, whose reasons the others get."""
        found: dict[Right, set[str]] = {}
        for right, reasons in sorted(self.reasons.items(), key=lambda item: (len(item[0].names) > 0, item[0])):
            wider = next((known for known in found if known.covers(right)), right)
            found.setdefault(wider, set()).update(reasons)
        return found


def missing(needed: Iterable[Right], granted: Iterable[Right]) -> list[Right]:
    """Return the needed rights that nothing grants; several grants may together have the names of one need."""
    grants = list(granted)
    return [right for right in needed if not _is_granted(right, grants)]


def excess(needed: Iterable[Right], granted: Iterable[Right]) -> list[Right]:
    """Return the granted rights that nothing needs, that have a wildcard, or that could be limited to names."""
    needs = list(needed)
    return [right for right in granted if not _is_needed(right, needs)]


def _is_granted(right: Right, grants: list[Right]) -> bool:
    if any(grant.covers(right) for grant in grants):
        return True
    names = {name for grant in grants if grant.is_about(right) for name in grant.names}
    return bool(right.names) and set(right.names) <= names


def _is_needed(grant: Right, needs: list[Right]) -> bool:
    if EVERYTHING in (grant.group, grant.resource, grant.verb):
        return False
    alike = [need for need in needs if grant.is_about(need) and need.namespace == grant.namespace]
    if not grant.names:
        return any(not need.names for need in alike)
    return all(any(not need.names or name in need.names for need in alike) for name in grant.names)


def _covers_resource(granted: str, needed: str) -> bool:
    if granted in (EVERYTHING, needed):
        return True
    return granted.startswith("*/") and granted.removeprefix("*") == needed[needed.find("/") :]


class RbacError(Exception):
    """The rules cannot be told; the text says which file, what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """Who has asked for something: two primaries at most, and the places of tasks."""

    access: Access
    primaries: frozenset[str]
    tasks: tuple[str, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedAccess:
    """The access set of one kind; ``content`` is the path of its role or playbook when it was recorded."""

    gvk: GVK
    content: Path
    plurals: dict[GVK, str]
    dependents: tuple[tuple[str, str], ...]
    blocks_deletion: bool
    exercised: frozenset[str]
    usages: tuple[RecordedUsage, ...]


def read_access_sets(directory: Path) -> list[RecordedAccess]:
    """Read all access sets of a record directory. Raises RbacError if there is none, or one that cannot be read."""
    paths = sorted((directory / ACCESS).glob("*.json"))
    if not paths:
        hint = "start the operator with 'rolecall run --record-dir' and let every task of its roles run"
        raise RbacError(f"{directory / ACCESS}: found no access set: {hint}")
    return [_read(path) for path in paths]


def _read(path: Path) -> RecordedAccess:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found = raw["format"]
        if isinstance(found, int) and found > FORMAT:
            raise RbacError(f"{path}: the access set has format {found}; this rolecall reads formats up to {FORMAT}")
        return _parsed(raw)
    except OSError as error:
        raise RbacError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RbacError(f"{path}: not a whole access set ({error!r}): remove the file and record again") from error


def _parsed(raw: dict[str, Any]) -> RecordedAccess:
    return RecordedAccess(
        gvk=GVK(raw["group"], raw["version"], raw["kind"]),
        content=Path(raw["content"]),
        plurals={GVK(group, version, kind): plural for group, version, kind, plural in raw["plurals"]},
        dependents=tuple((group, resource) for group, resource in raw["dependents"]),
        blocks_deletion=raw["blocksDeletion"],
        exercised=frozenset(raw["exercised"]),
        usages=tuple(_usage(each) for each in raw["accesses"]),
    )


def _usage(raw: dict[str, Any]) -> RecordedUsage:
    fields = ("group", "resource", "subresource", "verb", "namespace", "name")
    access = Access(*(str(raw[name]) for name in fields))
    return RecordedUsage(access, frozenset(raw["primaries"]), tuple(raw["tasks"]), tuple(raw["details"]))


_Rule = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Grant:
    """A right that a role grants, and where the role is."""

    right: Right
    where: str


def manifests_of(needed: Mapping[Right, Iterable[str]], name: str) -> Iterator[str]:
    """Yield the lines of a ClusterRole and of a Role for each namespace in which rights are needed."""
    for namespace in sorted({right.namespace for right in needed} | {""}):
        yield "---"
        yield "apiVersion: rbac.authorization.k8s.io/v1"
        yield f"kind: {'Role' if namespace else 'ClusterRole'}"
        yield "metadata:"
        yield f"  name: {name}"
        yield from [f"  namespace: {namespace}"] if namespace else []
        rules = _grouped(right for right in needed if right.namespace == namespace)
        yield "rules:" if rules else "rules: []"
        for (group, resource, names), verbs in rules.items():
            rights = [Right(namespace, group, resource, verb, names) for verb in verbs]
            yield from (f"  # {reason}" for reason in sorted({text for right in rights for text in needed[right]}))
            yield f"  - apiGroups: [{_quoted(group)}]"
            yield f"    resources: [{resource}]"
            yield from [f"    resourceNames: [{', '.join(map(_quoted, names))}]"] if names else []
            yield f"    verbs: [{', '.join(verbs)}]"


def read_grants(path: Path) -> list[Grant]:
    """Return what the roles in a file or directory grant. Raises RbacError."""
    if not path.exists():
        raise RbacError(f"{path}: no such file or directory")
    files = [path] if path.is_file() else sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    grants = [grant for file in files for grant in _grants_in(file)]
    if not grants:
        raise RbacError(f"{path}: found no Role and no ClusterRole to compare with")
    return grants


def _grants_in(path: Path) -> Iterator[Grant]:
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(each, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RbacError(f"{path}: cannot be read: {error}".replace("\n", " ")) from error
    for document in documents:
        if document.get("kind") in ("Role", "ClusterRole"):
            metadata = document.get("metadata") or {}
            namespace = (metadata.get("namespace") or "") if document["kind"] == "Role" else ""
            where = f"{path}, {document['kind']} {metadata.get('name', '')}"
            for rule in document.get("rules") or ():
                yield from (Grant(right, where) for right in _rights_in(rule, namespace))


def _rights_in(rule: dict[str, Any], namespace: str) -> Iterator[Right]:
    names = tuple(sorted(rule.get("resourceNames") or ()))
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                yield Right(namespace, group, resource, verb, names)


def _grouped(rights: Iterable[Right]) -> dict[_Rule, list[str]]:
    """Return the verbs of each rule; verbs that are limited to the same names share a rule."""
    by_verb: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        by_verb.setdefault((right.group, right.resource, right.verb), set()).update(right.names or {""})
    found: dict[_Rule, list[str]] = {}
    for (group, resource, verb), names in sorted(by_verb.items()):
        found.setdefault((group, resource, tuple(sorted(names - {""}))), []).append(verb)
    return dict(sorted(found.items()))


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"').strip() if not text or not text.replace(".", "").isalnum() else text
