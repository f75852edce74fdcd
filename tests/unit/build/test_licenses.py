import json
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from build.licenses import collections, license_of


def package(directory: Path, *lines: str) -> PathDistribution:
    place = directory / "thing-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", "Name: thing", "Version: 1.0", *lines]) + "\n")
    return PathDistribution(place)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["License-Expression: MIT"], "MIT"),
        (["License: BSD", "Classifier: License :: OSI Approved :: BSD License"], "BSD"),
        (["Classifier: License :: OSI Approved :: BSD License"], "BSD License"),
        (["License: " + "the whole text " * 20, "Classifier: License :: OSI Approved :: X"], "X"),
        ([], "see the package"),
    ],
)
def test_the_license_is_read_from_wherever_a_package_says_it(tmp_path: Path, lines: list[str], expected: str) -> None:
    assert license_of(package(tmp_path, *lines)) == expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"license": ["MIT", "GPL-3.0-or-later"]}, "MIT, GPL-3.0-or-later"),
        ({"license": [], "license_file": "COPYING"}, "GENERAL LICENCE Version 3"),
        ({"license": [], "license_file": "missing"}, "see the collection"),
    ],
)
def test_the_license_of_a_collection_is_listed(tmp_path: Path, info: dict[str, object], expected: str) -> None:
    directory = tmp_path / "a/b"
    directory.mkdir(parents=True)
    (directory / "COPYING").write_text("  GENERAL LICENCE\n  Version 3\n\nPreamble\n")
    manifest = {"collection_info": {"namespace": "a", "name": "b", "version": "1.0.0", **info}}
    (directory / "MANIFEST.json").write_text(json.dumps(manifest))
    assert list(collections(tmp_path)) == [("a.b", "1.0.0", expected)]
