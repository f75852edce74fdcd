"""Permissions as RBAC grants them: compared, written as manifests with reasons, and read from manifests."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rolecall.system.logs import printable

EVERYTHING: Final = "*"
_SECRETS: Final = ("", "secrets")
_LISTING: Final = ("list", "watch")
_SECRETS_COMMENTS: Final = (
    "With this rule, the account of the operator can read every Secret in the namespaces of the role.",
    "Narrower ways: the section 'Secrets' of the guide 'Least privilege'.",
)
_WORD: Final = re.compile("(?![yYnN]$)[A-Za-z][A-Za-z0-9.]*")  # kubectl takes y for a boolean
_RESOURCE: Final = re.compile("[a-z][a-z0-9./-]*")


class RbacError(Exception):
    """The rules cannot be determined; the text names the file, the problem and the remedy."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource (``pods/exec`` for a subresource); ``namespace`` is empty for every namespace.

    ``names`` are the objects to which it is limited; empty means all.
    """

    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the permission in the form ``patch deployments.apps``."""
        plural, _, sub = self.resource.partition("/")
        resource = f"{plural}.{self.group}" if self.group else plural
        names = f" ({', '.join(self.names)})" if self.names else ""
        namespace = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{'/' + sub if sub else ''}{names}{namespace}"

    def covers(self, other: "Permission") -> bool:
        """Return whether this permission includes the other."""
        has_names = not self.names or (bool(other.names) and set(other.names) <= set(self.names))
        return has_names and self.covers_without_names(other)

    def covers_without_names(self, other: "Permission") -> bool:
        """Return whether this permission includes the other, regardless of names."""
        is_of_subresource = (
            self.resource.startswith("*/") and self.resource[1:] == other.resource[other.resource.find("/") :]
        )
        return (
            self.namespace in ("", other.namespace)
            and self.group in (EVERYTHING, other.group)
            and self.verb in (EVERYTHING, other.verb)
            and (self.resource in (EVERYTHING, other.resource) or is_of_subresource)
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission that a role grants, and the location of the role."""

    permission: Permission
    location: str


def minimal(needs: Iterable[tuple[Permission, str]]) -> dict[Permission, set[str]]:
    """Return needed permissions with their reasons, without those that others cover: the others get their reasons."""
    found: dict[Permission, set[str]] = {}
    for permission, reason in sorted(needs, key=lambda need: (len(need[0].names) > 0, need[0])):
        wider = next((known for known in found if known.covers(permission)), permission)
        found.setdefault(wider, set()).add(reason)
    return found


def missing(needed: Iterable[Permission], granted: Iterable[Permission]) -> list[Permission]:
    """Return the needed permissions that are not granted; several grants may together have the names of one need."""
    grants = list(granted)

    def is_granted(need: Permission) -> bool:
        if any(grant.covers(need) for grant in grants):
            return True
        names = {name for grant in grants if grant.covers_without_names(need) for name in grant.names}
        return bool(need.names) and set(need.names) <= names

    return [need for need in needed if not is_granted(need)]


def excess(needed: Iterable[Permission], granted: Iterable[Permission]) -> list[Permission]:
    """Return the granted permissions that are not needed, have a wildcard, or could be limited to names."""
    needs = list(needed)

    def is_needed(grant: Permission) -> bool:
        if EVERYTHING in (grant.group, grant.resource, grant.verb):
            return False
        alike = [need for need in needs if grant.covers_without_names(need) and need.namespace == grant.namespace]
        if not grant.names:
            return any(not need.names for need in alike)
        return all(any(not need.names or name in need.names for need in alike) for name in grant.names)

    return [grant for grant in granted if not is_needed(grant)]


def reads_all_secrets(permission: Permission) -> bool:
    """Return whether a permission lists or watches Secrets regardless of their names, which shows their content."""
    of_secrets = (permission.group, permission.resource) == _SECRETS
    return of_secrets and permission.verb in _LISTING and not permission.names


def manifests_of(needed: Mapping[Permission, Iterable[str]], name: str) -> Iterator[str]:
    """Yield the lines of a ClusterRole, and of a Role for each namespace in which permissions are needed."""
    for namespace in sorted({permission.namespace for permission in needed} | {""}):
        yield "---"
        yield "apiVersion: rbac.authorization.k8s.io/v1"
        yield f"kind: {'Role' if namespace else 'ClusterRole'}"
        yield "metadata:"
        yield f"  name: {_quoted(name, _RESOURCE)}"
        yield from [f"  namespace: {_quoted(namespace, _RESOURCE)}"] if namespace else []
        lines = list(rule_lines({each: reasons for each, reasons in needed.items() if each.namespace == namespace}))
        yield "rules:" if lines else "rules: []"
        yield from (f"  {line}" for line in lines)


def rule_lines(needed: Mapping[Permission, Iterable[str]]) -> Iterator[str]:
    """Yield the lines of the rules for permissions in one namespace, each with its reasons as comments."""
    for (group, resource, names), verbs in _rules_of(needed).items():
        reasons = {
            reason
            for each, texts in needed.items()
            if (each.group, each.resource) == (group, resource) and each.verb in verbs
            for reason in texts
        }
        yield from (f"# {' '.join(printable(reason).split())}" for reason in sorted(reasons))
        if (group, resource) == _SECRETS and not names and set(verbs) & set(_LISTING):
            yield from (f"# {each}" for each in _SECRETS_COMMENTS)
        yield f"- apiGroups: [{_quoted(group)}]"
        yield f"  resources: [{_quoted(resource, _RESOURCE)}]"
        yield from [f"  resourceNames: [{', '.join(map(_quoted, names))}]"] if names else []
        yield f"  verbs: [{', '.join(map(_quoted, verbs))}]"


def _rules_of(permissions: Iterable[Permission]) -> dict[tuple[str, str, tuple[str, ...]], list[str]]:
    """Return the verbs of each rule; verbs that are limited to the same names share a rule."""
    by_verb: dict[tuple[str, str, str], set[str]] = {}
    for each in permissions:
        by_verb.setdefault((each.group, each.resource, each.verb), set()).update(each.names or {""})
    found: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, resource, verb), names in sorted(by_verb.items()):
        found.setdefault((group, resource, tuple(sorted(names - {""}))), []).append(verb)
    return dict(sorted(found.items()))


def _quoted(text: str, plain: re.Pattern[str] = _WORD) -> str:
    """Return a text as a value of YAML on one line, with quotes unless it matches ``plain`` and means itself."""
    is_plain = plain.fullmatch(text) is not None and yaml.safe_load(text) == text
    return text if is_plain else yaml.safe_dump(text, default_style='"', width=math.inf).strip()


def read_grants(path: Path, own_namespace: str = "") -> list[Grant]:
    """Return the grants of the roles in a file or directory. Raises RbacError.

    A Role without a namespace is in that of the operator, ``own_namespace``: Kustomize adds it.
    """
    if not path.exists():
        raise RbacError(f"{path}: no such file or directory")
    files = [path] if path.is_file() else sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    grants = [grant for file in files for grant in _grants_in(file, own_namespace)]
    if not grants:
        raise RbacError(f"{path}: found no Role and no ClusterRole to compare with")
    return grants


def _grants_in(path: Path, own_namespace: str) -> Iterator[Grant]:
    try:
        documents: list[Any] = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RbacError(f"{path}: cannot be read: {error}".replace("\n", " ")) from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") in ("Role", "ClusterRole"):
            metadata = document.get("metadata") or {}
            namespace = (metadata.get("namespace") or own_namespace) if document["kind"] == "Role" else ""
            yield from grants_of(document, namespace, f"{path}, {document['kind']} {metadata.get('name', '')}")


def grants_of(role: Mapping[str, Any], namespace: str, location: str) -> Iterator[Grant]:
    """Yield the grants of a Role or ClusterRole; ``namespace`` is empty for all namespaces."""
    for rule in role.get("rules") or ():
        names = tuple(sorted(rule.get("resourceNames") or ()))
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in rule.get("verbs") or ():
                    yield Grant(Permission(namespace, group, resource, verb, names), location)
