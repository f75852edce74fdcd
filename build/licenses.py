"""Prints the license of every Python package and Ansible collection in its environment, as a table.

The table is read from the installed packages, so it always matches the image.
"""

import json
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

LONGEST = 60


def license_of(package: Distribution) -> str:
    """Return the license in a package's metadata: the expression, the classifiers, or the free text."""
    metadata = package.metadata
    classifiers = [
        text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier", []) if text.startswith("License :: ")
    ]
    # Some packages put the whole text of their license under "License".
    said = [metadata[key].strip() for key in ("License-Expression", "License") if key in metadata]
    short = [text for text in said if text and "\n" not in text and len(text) <= LONGEST]
    return next(iter(short), "") or ", ".join(classifiers) or "see the package"


def packages() -> Iterator[tuple[str, str, str]]:
    """Yield the name, version, and license of each Python package."""
    for package in distributions():
        yield package.metadata["Name"], package.version, license_of(package)


def collections(directory: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the name, version, and license of each collection below a directory ``ansible_collections``."""
    for path in directory.glob("*/*/MANIFEST.json"):
        info = json.loads(path.read_text())["collection_info"]
        named = ", ".join(info.get("license") or []) or _first_line(
            path.parent / (info.get("license_file") or "LICENSE")
        )
        yield f"{info['namespace']}.{info['name']}", info["version"], named


def _first_line(path: Path) -> str:
    lines = path.read_text().splitlines() if path.is_file() else []
    return " ".join(line.strip() for line in lines[:2]) or "see the collection"


def main() -> None:
    """Print the table."""
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = [*packages(), *(row for place in places for row in collections(Path(place) / "ansible_collections"))]
    for name, version, text in sorted(found, key=lambda row: row[0].lower()):
        sys.stdout.write(f"{name:32} {version:16} {text}\n")


if __name__ == "__main__":
    main()
