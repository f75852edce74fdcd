"""Validates the names of projects, groups, versions and kinds.

Every check returns the name, or raises ScaffoldError with what was found and what was expected. All functions are pure.
"""

import re
from dataclasses import dataclass

from rolecall.kube.references import GVK
from rolecall.runner.runs.extra_vars import object_variable
from rolecall.workbench.project.errors import ScaffoldError

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_VERSION = re.compile(r"v[1-9][0-9]*(?:(?:alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_PROTECTED = re.compile(r"(?:^|\.)(?:k8s|kubernetes)\.io$")
_LONGEST_DOMAIN = 253
_LONGEST_LABEL = 63
_LONGEST_PROJECT = 40
"""Leaves room for suffixes: the name of the namespace, for example, is a label too."""
_LONGEST_KIND = 50
"""As above."""


def checked_project(name: str) -> str:
    """Return the name of a project."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_PROJECT:
        raise _refusal(
            "NAME",
            name,
            f"at most {_LONGEST_PROJECT} lower case letters, digits and '-', starting with a letter, not ending in '-'",
        )
    return name


def checked_domain(domain: str) -> str:
    """Return the domain that the groups of a project end in."""
    if _PROTECTED.search(domain):
        raise _refusal(
            "--domain", domain, "a domain of your own; API groups below this one are protected by Kubernetes"
        )
    return _checked_subdomain("--domain", domain)


def checked_group(group: str, domain: str) -> str:
    """Return the full name of the group, which ends in the domain."""
    _checked_subdomain("--group", group)
    return _checked_subdomain("--group with the domain", f"{group}.{domain}")


def checked_version(version: str) -> str:
    """Return the version of an API."""
    if not _VERSION.fullmatch(version) or len(version) > _LONGEST_LABEL:
        raise _refusal("--version", version, "a version such as v1, v1alpha1 or v2beta3")
    return version


def checked_kind(kind: str) -> str:
    """Return the name of a kind."""
    if not _KIND.fullmatch(kind) or len(kind) > _LONGEST_KIND:
        raise _refusal(
            "--kind", kind, f"at most {_LONGEST_KIND} letters and digits, starting with a capital, such as WebSite"
        )
    return kind


def checked_plural(plural: str) -> str:
    """Return the plural name of a kind in the API."""
    if not _NAME.fullmatch(plural) or len(plural) > _LONGEST_LABEL:
        raise _refusal(
            "--plural", plural, "lower case letters, digits and '-', starting with a letter, such as websites"
        )
    return plural


def plural_of(kind: str) -> str:
    """Return the English plural of a kind, in lower case, by simple rules."""
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
        """The kind in lower case: the name of the role, the files and the sample."""
        return self.kind.lower()

    def values(self) -> dict[str, str]:
        """Return the values for the templates, by their name there."""
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
            f"a DNS name such as example.com: lower case letters, digits, '-' and '.', at most {_LONGEST_DOMAIN} "
            f"characters, and at most {_LONGEST_LABEL} between two dots",
        )
    return text


def _refusal(where: str, found: str, expected: str) -> ScaffoldError:
    return ScaffoldError(f"{where}: expected {expected}, found {found!r}")
