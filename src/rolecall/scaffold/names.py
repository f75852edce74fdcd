"""The names that people choose for projects, groups, versions and kinds, checked before anything is made of them.

Every check gives the name back or raises ScaffoldError that says what was found and what is expected. Pure.
"""

import re
from dataclasses import dataclass

from rolecall.kube.references import GVK
from rolecall.runs.extra_vars import object_variable
from rolecall.scaffold.errors import ScaffoldError

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_VERSION = re.compile(r"v[1-9][0-9]*(?:(?:alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_GUARDED = re.compile(r"(?:^|\.)(?:k8s|kubernetes)\.io$")
_LONGEST_DOMAIN = 253
_LONGEST_LABEL = 63
_LONGEST_PROJECT = 40
"""Leaves room for what is appended to it: the namespace, for one, is a label too."""
_LONGEST_KIND = 50
"""As above."""


def checked_project(name: str) -> str:
    """Return the name of a project."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_PROJECT:
        raise _refusal(
            "NAME",
            name,
            f"at most {_LONGEST_PROJECT} lower case letters, digits and '-', a letter first and no '-' last",
        )
    return name


def checked_domain(domain: str) -> str:
    """Return the domain that the groups of a project end in."""
    if _GUARDED.search(domain):
        raise _refusal("--domain", domain, "a domain of your own: Kubernetes guards the groups below this one")
    return _checked_subdomain("--domain", domain)


def checked_group(group: str, domain: str) -> str:
    """Return the full name of the group: what was given, and the domain after it."""
    _checked_subdomain("--group", group)
    return _checked_subdomain("--group with the domain", f"{group}.{domain}")


def checked_version(version: str) -> str:
    """Return the version of an API."""
    if not _VERSION.fullmatch(version) or len(version) > _LONGEST_LABEL:
        raise _refusal("--version", version, "one like v1, v1alpha1 or v2beta3")
    return version


def checked_kind(kind: str) -> str:
    """Return the name of a kind."""
    if not _KIND.fullmatch(kind) or len(kind) > _LONGEST_KIND:
        raise _refusal(
            "--kind", kind, f"at most {_LONGEST_KIND} letters and digits, a capital first, like WebSite or Memcached"
        )
    return kind


def checked_plural(plural: str) -> str:
    """Return the plural by which the API server knows a kind."""
    if not _NAME.fullmatch(plural) or len(plural) > _LONGEST_LABEL:
        raise _refusal("--plural", plural, "lower case letters, digits and '-', a letter first, like websites")
    return plural


def plural_of(kind: str) -> str:
    """Return the plural of a kind by the simple rules of English, in lower case."""
    word = kind.lower()
    if re.search(r"(?:s|x|z|ch|sh)$", word):
        return f"{word}es"
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}s"


@dataclass(frozen=True, slots=True)
class KindNames:
    """Every name of one kind in one project; ``group`` is the full one."""

    project: str
    group: str
    version: str
    kind: str
    plural: str

    @property
    def name(self) -> str:
        """The name in lower case: of the role, the files and the sample."""
        return self.kind.lower()

    def values(self) -> dict[str, str]:
        """Return what the templates call them."""
        return {
            "project": self.project,
            "namespace": self.project.replace("-", "_"),
            "group": self.group,
            "version": self.version,
            "kind": self.kind,
            "plural": self.plural,
            "name": self.name,
            "object": object_variable(GVK(self.group, self.version, self.kind)),
        }


def _checked_subdomain(where: str, text: str) -> str:
    parts_fit = all(len(part) <= _LONGEST_LABEL for part in text.split("."))
    if not (_DOMAIN.fullmatch(text) and parts_fit and len(text) <= _LONGEST_DOMAIN):
        raise _refusal(
            where,
            text,
            f"a DNS name like example.com: lower case letters, digits, '-' and '.', at most {_LONGEST_DOMAIN} in all "
            f"and {_LONGEST_LABEL} between two dots",
        )
    return text


def _refusal(where: str, found: str, expected: str) -> ScaffoldError:
    return ScaffoldError(f"{where}: found {found!r}, expected {expected}")
