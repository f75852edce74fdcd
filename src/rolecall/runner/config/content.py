"""Finds the role or playbook of an entry of ``watches.yaml``.

The search order is the Go runner's: an absolute path as it is, a collection's role by its full name, each directory of
ANSIBLE_ROLES_PATH, then ``roles`` below the working directory, then the working directory itself. Missing content is an
error before anything starts.

With ``variables: declared``, only the options of the role's main entry point in ``meta/argument_specs.yml`` become
variables. Extra vars override everything, including the role's own registers and facts, so that a field with such a
name would otherwise change what the role does.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rolecall.runner.config.watch_keys import PLAYBOOK, ROLE, VARIABLES
from rolecall.runner.config.yaml_reader import MappingReader, describe_error, first_document

FULL_NAME_PARTS = 3
_ENDINGS = (".yml", ".yaml", ".json")
ARGUMENT_SPECS = tuple(f"meta/{name}{ending}" for name in ("argument_specs", "main") for ending in _ENDINGS)
"""Where a role may have its argument specs, in Ansible's order."""

_KEY = "argument_specs"
DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class RoleContent:
    """A role to run, by its absolute path."""

    path: Path


@dataclass(frozen=True, slots=True)
class PlaybookContent:
    """A playbook to run, by its absolute path."""

    path: Path


Content = RoleContent | PlaybookContent


@dataclass(frozen=True, slots=True)
class ContentFinder:
    """The places to search: the working directory and the environment of the operator."""

    directory: Path
    environment: Mapping[str, str]

    def content(self, reader: MappingReader) -> Content | None:
        """Return the playbook or the role of an entry; the playbook takes precedence.

        Return None if the entry has neither, or if the file is missing; add an error in the latter case.
        """
        playbook, role = reader.read(PLAYBOOK), reader.read(ROLE)
        if playbook:
            path = self.directory / playbook
            if os.path.isfile(path):  # noqa: PTH113 - pathlib raises PermissionError
                return PlaybookContent(path)
            reader.add_error(PLAYBOOK.name, f"playbook: {path} not found")
        elif role:
            candidates = list(self._role_candidates(role))
            for candidate in candidates:
                if os.path.isdir(candidate):  # noqa: PTH112 - pathlib raises PermissionError
                    if os.pathsep in str(candidate):  # runs find it by ANSIBLE_ROLES_PATH
                        reader.add_error(ROLE.name, f"role: {candidate}: expected a path without {os.pathsep!r}")
                    return RoleContent(candidate)
            tried = ", ".join(map(str, candidates))
            reader.add_error(ROLE.name, f"role: {role} not found (looked for {tried})")
        return None

    def _role_candidates(self, text: str) -> Iterator[Path]:
        if Path(text).is_absolute():
            yield Path(text)
            return
        parts = text.split(".")
        if len(parts) == FULL_NAME_PARTS:
            namespace, collection, role = parts
            home = Path(self.environment.get("HOME", ""))
            default = [Path("/usr/share/ansible/collections"), home / ".ansible" / "collections"]
            for directory in self._listed("ANSIBLE_COLLECTIONS_PATH") or default:
                yield directory / "ansible_collections" / namespace / collection / "roles" / role
        for directory in self._listed("ANSIBLE_ROLES_PATH"):
            yield directory / text
            yield directory / "roles" / text
        yield self.directory / "roles" / text
        yield self.directory / text

    def _listed(self, variable: str) -> list[Path]:
        return [self.directory / item for item in self.environment.get(variable, "").split(os.pathsep) if item]


def read_declared(reader: MappingReader, contents: Iterable[Content | None]) -> dict[Content, frozenset[str]] | None:
    """Return the variables that each role of a watch declares, None if all fields of a spec become variables.

    Add errors to those of ``reader``.
    """
    value = reader.read(VARIABLES)
    if value == VARIABLES.default:
        return None
    if value != DECLARED:
        reader.add_error(VARIABLES.name, f"expected {VARIABLES.default} or {DECLARED}, found {value!r}")
        return None
    found: dict[Content, frozenset[str]] = {}
    for content in contents:
        try:
            found |= {content: declared_variables(content)} if content else {}
        except ValueError as error:
            reader.add_error(VARIABLES.name, str(error))
    return found


def declared_variables(content: Content) -> frozenset[str]:
    """Return the names of the variables. Raise ValueError with the solution if the content declares none."""
    if not isinstance(content, RoleContent):
        raise ValueError(  # noqa: TRY004 - one type for all errors of a watch
            f"declared needs a role with argument specs, found the playbook {content.path}: use a role, or all"
        )
    specs = _argument_specs(content)
    if specs is None:
        raise ValueError(
            "declared needs the role's argument specs: declare its variables in "
            f"{content.path / ARGUMENT_SPECS[0]}, below argument_specs.main.options, or use all"
        )
    return frozenset(map(str, _main_options(*specs)))


def validated_options(content: Content) -> Mapping[str, Any]:
    """Return the options against which Ansible validates the variables of a role, as they are in its argument specs.

    They are those of the entry point ``main``; empty for a playbook, and for a role without valid argument specs.
    Blocks; a file that hasn't changed isn't read again.
    """
    if not isinstance(content, RoleContent):
        return {}
    for path in (content.path / name for name in ARGUMENT_SPECS):
        try:
            status = path.stat()
            options = _options_of(path, status.st_mtime_ns, status.st_size)
        except OSError:
            continue
        if options is not None:
            return options
    return {}


@lru_cache(maxsize=256)
def _options_of(path: Path, _changed_ns: int, _size: int) -> Mapping[str, Any] | None:
    """Return the options in a file, None if it has no argument specs; the other arguments are keys of the cache."""
    try:
        specs = _specs_in(path)
        return None if specs is None else _main_options(path, specs)
    except ValueError:
        return {}  # Ansible reports it


def _main_options(path: Path, specs: Any) -> Mapping[str, Any]:
    """Return the options of the entry point ``main`` in the argument specs of a file. Raise ValueError if invalid."""
    main = specs.get("main") if isinstance(specs, dict) else None
    if not isinstance(main, dict):
        raise ValueError(f"{path}: {_KEY} has no entry point main with the options of the role")  # noqa: TRY004
    options = main.get("options") or {}
    if not isinstance(options, dict):
        raise ValueError(f"{path}: {_KEY}.main.options: expected a mapping")  # noqa: TRY004 - as above
    return options


def _argument_specs(content: RoleContent) -> tuple[Path, Any] | None:
    """Return the file and the value of a role's argument specs, None if it has none; raise ValueError if invalid."""
    for path in (content.path / name for name in ARGUMENT_SPECS):
        if os.path.isfile(path):  # noqa: PTH113 - pathlib raises PermissionError
            try:
                specs = _specs_in(path)
            except OSError as error:
                raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
            if specs is not None:
                return path, specs
    return None


def _specs_in(path: Path) -> Any:
    """Return the argument specs in a file of a role, None if it has none. Raise OSError or ValueError."""
    try:
        document = first_document(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {describe_error(error)[0]}") from error
    return document.get(_KEY) if isinstance(document, dict) else None
