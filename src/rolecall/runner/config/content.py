"""Finds the role or playbook of an entry of ``watches.yaml``.

The search order is the Go runner's: an absolute path as it is, a collection's role by its full name, each directory of
ANSIBLE_ROLES_PATH, then ``roles`` below the working directory, then the working directory itself. What cannot be found
is an error before anything starts.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rolecall.runner.config.mapping_reader import MappingReader
from rolecall.runner.config.watch_keys import PLAYBOOK, ROLE

FULL_NAME_PARTS = 3


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
    """Where to look: the working directory and the environment of the operator."""

    directory: Path
    environment: Mapping[str, str]

    def content(self, reader: MappingReader) -> Content | None:
        """Return the playbook or the role of an entry; the playbook takes precedence.

        Return None if the entry has neither, or if the file is missing; add an error in the latter case.
        """
        playbook, role = reader.read(PLAYBOOK), reader.read(ROLE)
        if playbook:
            return self._playbook(reader, playbook)
        return self._role(reader, role) if role else None

    def _playbook(self, reader: MappingReader, text: str) -> PlaybookContent | None:
        path = self.directory / text
        if path.is_file():
            return PlaybookContent(path)
        reader.add_error(PLAYBOOK.name, f"playbook: {path} not found")
        return None

    def _role(self, reader: MappingReader, text: str) -> RoleContent | None:
        candidates = list(self._role_candidates(text))
        for candidate in candidates:
            if candidate.is_dir():
                return RoleContent(candidate)
        looked = ", ".join(map(str, candidates))
        reader.add_error(ROLE.name, f"role: {text} not found (looked for {looked})")
        return None

    def _role_candidates(self, text: str) -> Iterator[Path]:
        if Path(text).is_absolute():
            yield Path(text)
            return
        parts = text.split(".")
        if len(parts) == FULL_NAME_PARTS:
            namespace, collection, role = parts
            for directory in self._collection_directories():
                yield directory / "ansible_collections" / namespace / collection / "roles" / role
        for directory in self._listed("ANSIBLE_ROLES_PATH"):
            yield directory / text
            yield directory / "roles" / text
        yield self.directory / "roles" / text
        yield self.directory / text

    def _collection_directories(self) -> list[Path]:
        home = Path(self.environment.get("HOME", ""))
        return self._listed("ANSIBLE_COLLECTIONS_PATH") or [
            Path("/usr/share/ansible/collections"),
            home / ".ansible" / "collections",
        ]

    def _listed(self, variable: str) -> list[Path]:
        text = self.environment.get(variable, "")
        return [self.directory / item for item in text.split(os.pathsep) if item]
