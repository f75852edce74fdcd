"""Rules as Kubernetes manifests: written with the reasons for each rule, and read back for a comparison."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.workbench.permissions.access_files import RbacError
from rolecall.workbench.permissions.rights import Right

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
