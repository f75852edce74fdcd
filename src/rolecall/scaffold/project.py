"""What a new project consists of, and what a new kind adds to one.

Both functions only read; what they return says what is to be written. They raise ScaffoldError for names that cannot
be, for a folder that is no project of ours, and for files to which nothing can be added.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.scaffold.errors import ScaffoldError
from rolecall.scaffold.names import (
    KindNames,
    checked_domain,
    checked_group,
    checked_kind,
    checked_plural,
    checked_project,
    checked_version,
    plural_of,
)
from rolecall.scaffold.project_files import ProjectFiles
from rolecall.scaffold.templates import render_snippet, render_tree
from rolecall.scaffold.yaml_lists import append_item, list_items

PROJECT_FILE = "PROJECT"
_WATCHES = "watches.yaml"
_INDENT_OF_TASKS = " " * 4


@dataclass(frozen=True, slots=True)
class NewKind:
    """What the user wants; ``group`` is without the domain, and ``plural`` None takes the one of simple English."""

    group: str
    version: str
    kind: str
    plural: str | None = None
    with_role: bool = False
    with_playbook: bool = False


def init_project(folder: Path, name: str, domain: str) -> ProjectFiles:
    """Return what makes the folder a project of this name, whose groups end in the domain."""
    values = {"project": checked_project(name), "domain": checked_domain(domain)}
    return ProjectFiles(folder, render_tree("project", values), {})


def create_api(folder: Path, wanted: NewKind) -> ProjectFiles:
    """Return what adds a kind to the project in the folder."""
    if not (wanted.with_role or wanted.with_playbook):
        raise ScaffoldError("found neither --generate-role nor --generate-playbook, expected one of them, or both")
    names = _names(folder, wanted)
    values = names.values()
    tasks = render_snippet("tasks", values)
    created = render_tree("api", values)
    if wanted.with_role:
        created |= render_tree("role", values | {"tasks": tasks})
    if wanted.with_playbook:
        done = render_snippet("role_call", values) if wanted.with_role else tasks
        created |= render_tree("playbook", values | {"tasks": textwrap.indent(done, _INDENT_OF_TASKS)})
    else:
        created |= render_tree("once", values)
    content = f"playbook: playbooks/{names.name}.yml" if wanted.with_playbook else f"role: {names.name}"
    return ProjectFiles(folder, created, _extended(folder, names, content))


def _names(folder: Path, wanted: NewKind) -> KindNames:
    project, domain = _read_project(folder)
    kind = checked_kind(wanted.kind)
    return KindNames(
        project,
        checked_group(wanted.group, domain),
        checked_version(wanted.version),
        kind,
        checked_plural(plural_of(kind) if wanted.plural is None else wanted.plural),
    )


def _read_project(folder: Path) -> tuple[str, str]:
    """Return the name and the domain of the project."""
    where = folder / PROJECT_FILE
    try:
        found: Any = yaml.safe_load(_read(folder, PROJECT_FILE))
        return checked_project(str(found["projectName"])), checked_domain(str(found["domain"]))
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise ScaffoldError(f"{where}: expected the keys projectName and domain: {error!r}") from error


def _extended(folder: Path, names: KindNames, content: str) -> dict[str, str]:
    watches = _read(folder, _WATCHES)
    _refuse_a_second_watch(list_items(watches, str(folder / _WATCHES)), names, folder)
    values = names.values() | {"content": content}
    additions = (
        (_WATCHES, None, render_snippet("watch", values)),
        ("demo.yaml", "goals", render_snippet("goal", values)),
        ("deploy/crds/kustomization.yaml", "resources", f"- {names.plural}.yaml"),
        ("deploy/rbac/kustomization.yaml", "resources", f"- {names.name}.yaml"),
        ("deploy/samples/kustomization.yaml", "resources", f"- {names.name}.yaml"),
    )
    return {path: append_item(_read(folder, path), key, item, str(folder / path)) for path, key, item in additions}


def _refuse_a_second_watch(entries: list[Any], names: KindNames, folder: Path) -> None:
    wanted = (names.group, names.version, names.kind)
    for entry in entries:
        if isinstance(entry, dict) and tuple(entry.get(key) for key in ("group", "version", "kind")) == wanted:
            raise ScaffoldError(
                f"{folder / _WATCHES}: found an entry for {names.group}/{names.version}, kind {names.kind!r}, "
                "expected none. Nothing was written."
            )


def _read(folder: Path, path: str) -> str:
    try:
        return (folder / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScaffoldError(
            f"{folder / path}: found no such file. Run this in a project of 'rolecall init', or say --project DIR"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScaffoldError(f"{folder / path}: {error}") from error
