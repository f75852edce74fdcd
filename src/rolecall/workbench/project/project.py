"""The files of a new project, and the files that a new kind adds to a project.

Both functions only read, and return the files to write. They raise ScaffoldError for invalid names, for a directory
that is not a project, and for files to which they cannot add an entry.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rolecall.workbench.project.errors import ScaffoldError
from rolecall.workbench.project.names import (
    KindNames,
    checked_domain,
    checked_group,
    checked_kind,
    checked_plural,
    checked_project,
    checked_version,
    plural_of,
)
from rolecall.workbench.project.project_files import ProjectFiles
from rolecall.workbench.project.templates import render_snippet, render_tree
from rolecall.workbench.project.watches_schema import schema_text
from rolecall.workbench.project.yaml_lists import append_item, list_items

PROJECT_FILE = "PROJECT"
SCHEMA_FILE = "watches.schema.json"
_WATCHES = "watches.yaml"
_INDENT_OF_TASKS = " " * 4


@dataclass(frozen=True, slots=True)
class NewKind:
    """The kind to add. ``group`` is without the domain; if ``plural`` is None, the English plural is used.

    Without a playbook, the kind always has a role.
    """

    group: str
    version: str
    kind: str
    plural: str | None = None
    with_role: bool = False
    with_playbook: bool = False

    @property
    def has_role(self) -> bool:
        """Whether a role reconciles the kind, called by the playbook if there is one."""
        return self.with_role or not self.with_playbook


def init_project(directory: Path, name: str, domain: str) -> ProjectFiles:
    """Return the files of a new project with this name, whose API groups end in the domain."""
    values = {"project": checked_project(name), "domain": checked_domain(domain)}
    return ProjectFiles(directory, {**render_tree("project", values), SCHEMA_FILE: schema_text()}, {})


def create_api(directory: Path, new_kind: NewKind) -> ProjectFiles:
    """Return the files that add a kind to the project in the directory."""
    names = _names(directory, new_kind)
    values = names.values()
    tasks = render_snippet("tasks", values)
    created = render_tree("api", values)
    if new_kind.has_role:
        created |= render_tree("role", values | {"tasks": tasks})
    if new_kind.with_playbook:
        content = render_snippet("role_call", values) if new_kind.has_role else tasks
        created |= render_tree("playbook", values | {"tasks": textwrap.indent(content, _INDENT_OF_TASKS)})
    else:
        created |= render_tree("once", values)
    run = f"playbook: playbooks/{names.name}.yml" if new_kind.with_playbook else f"role: {names.name}"
    return ProjectFiles(directory, created, _extended(directory, names, run))


def _names(directory: Path, new_kind: NewKind) -> KindNames:
    project, domain = _read_project(directory)
    kind = checked_kind(new_kind.kind)
    return KindNames(
        project,
        checked_group(new_kind.group, domain),
        checked_version(new_kind.version),
        kind,
        checked_plural(plural_of(kind) if new_kind.plural is None else new_kind.plural),
    )


def _read_project(directory: Path) -> tuple[str, str]:
    """Return the name and the domain of the project."""
    where = directory / PROJECT_FILE
    try:
        found: Any = yaml.safe_load(_read(directory, PROJECT_FILE))
        return checked_project(str(found["projectName"])), checked_domain(str(found["domain"]))
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise ScaffoldError(f"{where}: expected the keys projectName and domain: {error!r}") from error


def _extended(directory: Path, names: KindNames, content: str) -> dict[str, str]:
    watches = _read(directory, _WATCHES)
    _check_no_watch(list_items(watches, str(directory / _WATCHES)), names, directory)
    values = names.values() | {"content": content}
    additions = (
        (_WATCHES, None, render_snippet("watch", values)),
        ("demo.yaml", "goals", render_snippet("goal", values)),
        ("deploy/crds/kustomization.yaml", "resources", f"- {names.plural}.yaml"),
        ("deploy/rbac/kustomization.yaml", "resources", f"- {names.name}.yaml"),
        ("deploy/samples/kustomization.yaml", "resources", f"- {names.name}.yaml"),
    )
    return {
        path: append_item(_read(directory, path), key, item, str(directory / path)) for path, key, item in additions
    }


def _check_no_watch(entries: list[Any], names: KindNames, directory: Path) -> None:
    wanted = (names.group, names.version, names.kind)
    for entry in entries:
        if isinstance(entry, dict) and tuple(entry.get(key) for key in ("group", "version", "kind")) == wanted:
            raise ScaffoldError(
                f"{directory / _WATCHES}: already has an entry for {names.group}/{names.version}, kind {names.kind!r}. "
                "Nothing was written."
            )


def _read(directory: Path, path: str) -> str:
    try:
        return (directory / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScaffoldError(
            f"{directory / path}: file not found. Run this in a project of 'rolecall init', or use --project DIR"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScaffoldError(f"{directory / path}: {error}") from error
