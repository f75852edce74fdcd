"""Which code a run has worked with: a digest of its role's files, and the versions of the Kubernetes collections."""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rolecall.runner.config.content import Content
from rolecall.runner.runs.content_files import directories_of, files_of

_COLLECTIONS: Final = ("kubernetes.core", "operator_sdk.util", "community.okd")
_State = tuple[str, Path, int, int]


def digest_of_content(contents: Iterable[Content]) -> str:
    """Return a digest of the files of roles and playbooks, by their names and content. Blocks."""
    return _digest(tuple(state for content in contents for state in sorted(_states(content))))


def _states(content: Content) -> Iterator[_State]:
    """Yield each file's name and what changes when the file does; what cannot be read to its end does not count."""
    base = next(directories_of(content))
    for path in files_of(content):
        try:
            found = path.stat()
        except FileNotFoundError:  # a link to nowhere, or removed meanwhile
            continue
        if stat.S_ISREG(found.st_mode):
            yield os.path.relpath(path, base), path, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)
def _digest(states: tuple[_State, ...]) -> str:
    digest = hashlib.sha256()
    for name, path, _, _ in states:
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


@lru_cache(maxsize=1)
def collections_near() -> dict[str, str]:
    """Return the versions of the collections by which roles reach Kubernetes, as far as they are on Python's path."""
    found = {}
    package = find_spec("ansible_collections")
    for root in (package.submodule_search_locations or ()) if package else ():
        for name in _COLLECTIONS:
            manifest = Path(root, *name.split("."), "MANIFEST.json")
            if manifest.is_file():
                found[name] = str(json.loads(manifest.read_text())["collection_info"]["version"])
    return found
