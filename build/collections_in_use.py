"""Puts the collections that requirements.yml names, and those they depend on, into a folder of Python packages.

They are taken from an unpacked package "ansible", so that the image has what the lock file has, and without their tests
and documentation.
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
    """Yield each collection and what its manifest says, once, those it depends on after it.

    Raises SystemExit when one is not there.
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
                f"the collection {name!r} is not in the locked package ansible; take it out of requirements.yml"
            )
        info = json.loads(manifest.read_text())["collection_info"]
        yield name, info
        waiting += info["dependencies"]


def copy(requirements: Path, source: Path, packages: Path) -> None:
    """Copy the collections in use. Says so when a version is not the one that requirements.yml asks for."""
    asked = {each["name"]: each["version"] for each in yaml.safe_load(requirements.read_text())["collections"]}
    for name, info in with_dependencies(list(asked), source):
        if asked.get(name, info["version"]) != info["version"]:
            sys.stderr.write(f"{name}: {info['version']} is locked for this Python, {asked[name]} in {requirements}\n")
        place = name.replace(".", "/")
        shutil.copytree(source / place, packages / "ansible_collections" / place, ignore=UNUSED)


def main() -> None:
    """Copy what the command line names."""
    parser = argparse.ArgumentParser(description="Copy the collections in use.")
    parser.add_argument("requirements", type=Path, help="the file that names them")
    parser.add_argument("source", type=Path, help="a folder ansible_collections that has them")
    parser.add_argument("packages", type=Path, help="where the folder ansible_collections is made")
    options = parser.parse_args()
    copy(options.requirements, options.source, options.packages)


if __name__ == "__main__":
    main()
