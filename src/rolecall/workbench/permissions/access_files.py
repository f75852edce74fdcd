"""Reads the access sets that ``rolecall run --record-dir`` has written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.kube.references import GVK
from rolecall.runner.record.access import FORMAT, Access
from rolecall.runner.record.files import ACCESS


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
