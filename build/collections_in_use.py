"""Copies the collections in requirements.yml and their dependencies into a directory of Python packages.

The collections come from an unpacked package ``ansible``, so the image has the versions of the lock file. Their
tests and documentation are omitted.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

UNUSED = shutil.ignore_patterns("tests", "docs", "changelogs", "CHANGELOG.rst", ".*", "*.pyc", "__pycache__")


def with_dependencies(names: list[str], source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each collection once with its manifest, dependencies after it.

    Raise SystemExit if a collection is missing.
    """
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        manifest = source / name.replace(".", "/") / "MANIFEST.json"
        if not manifest.exists():
            raise SystemExit(
                f"the collection {name!r} is not in the locked package ansible; remove it from requirements.yml"
            )
        info = json.loads(manifest.read_text())["collection_info"]
        yield name, info
        waiting += info["dependencies"]


def copy(requirements: Path, source: Path, packages: Path) -> None:
    """Copy the collections in use. Print a warning if a version differs from requirements.yml."""
    asked = {each["name"]: each["version"] for each in yaml.safe_load(requirements.read_text())["collections"]}
    for name, info in with_dependencies(list(asked), source):
        if asked.get(name, info["version"]) != info["version"]:
            sys.stderr.write(f"{name}: {info['version']} is locked for this Python, {asked[name]} in {requirements}\n")
        place = name.replace(".", "/")
        shutil.copytree(source / place, packages / "ansible_collections" / place, ignore=UNUSED)


def main() -> None:
    """Copy the collections for the arguments on the command line."""
    parser = argparse.ArgumentParser(description="Copy the collections in use.")
    parser.add_argument("requirements", type=Path, help="the file that lists them")
    parser.add_argument("source", type=Path, help="a directory ansible_collections to copy from")
    parser.add_argument("packages", type=Path, help="the directory in which to create ansible_collections")
    options = parser.parse_args()
    copy(options.requirements, options.source, options.packages)


if __name__ == "__main__":
    main()
