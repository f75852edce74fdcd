"""YAML of roles, parsed before the fork. Saves 11 ms of a run.

A role's files are read in every run, so that no change is missed. While a file has the same text as when the server
started, the run uses the server's parsed document, once, because the run may change it. ansible-core returns a copy and
keeps the original; both are made before the fork, because copying takes longer than parsing.
"""

import copy
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible import template
from ansible.module_utils.common.text.converters import to_text
from ansible.parsing import dataloader
from ansible.parsing.dataloader import DataLoader

try:
    from ansible.module_utils._internal._datatag import AnsibleTagHelper
except ImportError:  # before 2.19, a text is only a text
    AnsibleTagHelper = None

_DIRECTORIES = ("tasks", "handlers", "defaults", "vars", "meta")
_SUFFIXES = frozenset({".yml", ".yaml"})
_FILE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a file as ansible-core's loader reads it, and two parsed copies."""

    text: str
    original: Any
    twin: Any


@dataclass(frozen=True, slots=True)
class Documents:
    """Parsed files, by path."""

    by_path: dict[str, Document] = field(default_factory=dict)

    @classmethod
    def of_roles(cls, contents: Iterable[Path]) -> "Documents":
        """Parse the files of the roles in these directories; runs parse those that fail here."""
        found = cls()
        loader = DataLoader()
        for path in _files(contents):
            try:
                text = _text_of(loader, path)
                original, twin = (loader.load(text, file_name=path) for _ in range(2))
            except Exception:  # noqa: BLE001, S112 - the run that reads the file reports it
                continue
            found.by_path[path] = Document(text, original, twin)
        return found

    def install(self) -> None:
        """Use them in this process."""
        twins: dict[int, Document] = {}

        def copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
            document = twins.pop(id(value), None) if memo is None else None
            return copy.deepcopy(value, memo) if document is None else document.twin

        DataLoader.load = self._around_load(DataLoader.load, twins)
        dataloader.copy = SimpleNamespace(**{**vars(copy), "deepcopy": copied})

    def _around_load(self, original: Callable[..., Any], twins: dict[int, Document]) -> Callable[..., Any]:
        def load(loader: DataLoader, data: str, file_name: str | None = None, *args: Any, **options: Any) -> Any:
            is_usual = not args and {name for name, value in options.items() if value} <= {"show_content"}
            document = self.by_path.get(file_name) if file_name and is_usual else None
            if document is None or not _is_same(document.text, data):
                return original(loader, data, file_name, *args, **options)
            del self.by_path[str(file_name)]
            twins[id(document.original)] = document
            return document.original

        return load


def _files(contents: Iterable[Path]) -> Iterator[str]:
    """Yield the paths of the roles' files as a run names them."""
    count = 0
    for role in contents:
        for directory in _DIRECTORIES:
            for path in sorted(Path(os.path.realpath(role), directory).rglob("*")):
                if path.suffix in _SUFFIXES and count < _FILE_LIMIT:
                    count += 1
                    yield str(path)


def _text_of(loader: DataLoader, path: str) -> str:
    """Return the text of a file as a run reads it. Raises AnsibleError, also if it has to be decrypted."""
    if AnsibleTagHelper:
        text: str = template.trust_as_template(loader.get_text_file_contents(path))
        return text  # with its tags, which `str` would remove
    content, _ = loader._get_file_contents(path)  # noqa: SLF001 - what `load_from_file` calls
    return str(to_text(content, errors="surrogate_or_strict"))


def _is_same(one: str, other: str) -> bool:
    """Return whether two texts are equal, and their tags, where ansible-core has tags."""
    tags = AnsibleTagHelper.tags if AnsibleTagHelper else type
    return type(one) is type(other) and one == other and tags(one) == tags(other)
