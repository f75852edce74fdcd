"""Which code a run has worked with: a digest of its role's files, and the versions of the Kubernetes collections."""

import hashlib
import json
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_COLLECTIONS: Final = ("kubernetes.core", "operator_sdk.util", "community.okd")
_IGNORED: Final = ("__pycache__", ".git")


def digest_of_content(folder: Path) -> str:
    """Return a digest of the files below a directory, by their names and content."""
    return _digest(folder, _state(folder))


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what changes when a file below a directory does."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part in _IGNORED for part in path.parts):
            stat = path.stat()
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(found)


@lru_cache(maxsize=64)
def _digest(folder: Path, state: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in state:
        path = Path(name)
        digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
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
