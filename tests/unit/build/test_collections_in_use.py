import json
from pathlib import Path

import pytest
from build.collections_in_use import copy


def collection(source: Path, name: str, version: str = "1.0.0", **dependencies: str) -> None:
    directory = source / name.replace(".", "/")
    for part in ("plugins/modules", "tests/unit", "docs"):
        (directory / part).mkdir(parents=True)
    (directory / "plugins/modules/thing.py").write_text("")
    (directory / "MANIFEST.json").write_text(
        json.dumps({"collection_info": {"version": version, "dependencies": dependencies}})
    )


def requirements(directory: Path, name: str, version: str) -> Path:
    path = directory / "requirements.yml"
    path.write_text(f"collections: [{{name: {name}, version: {version}}}]")
    return path


def copied(packages: Path) -> set[str]:
    found = (path.parent for path in packages.rglob("MANIFEST.json"))
    return {".".join(path.relative_to(packages / "ansible_collections").parts) for path in found}


def test_only_what_is_asked_for_and_what_that_needs_is_copied(tmp_path: Path) -> None:
    source, packages = tmp_path / "all", tmp_path / "packages"
    collection(source, "a.used", **{"b.needed": ">=1"})
    collection(source, "b.needed", **{"a.used": ">=1"})
    collection(source, "c.unused")
    copy(requirements(tmp_path, "a.used", "1.0.0"), source, packages)
    assert copied(packages) == {"a.used", "b.needed"}


def test_tests_and_documentation_stay_behind(tmp_path: Path) -> None:
    source, packages = tmp_path / "all", tmp_path / "packages"
    collection(source, "a.used")
    copy(requirements(tmp_path, "a.used", "1.0.0"), source, packages)
    assert {path.name for path in (packages / "ansible_collections/a/used").iterdir()} == {"plugins", "MANIFEST.json"}


def test_another_version_than_asked_for_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "all"
    collection(source, "a.used", "2.0.0")
    copy(requirements(tmp_path, "a.used", "1.0.0"), source, tmp_path / "packages")
    assert "a.used: 2.0.0 is locked" in capsys.readouterr().err


def test_a_collection_that_is_not_there_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"'a\.missing' is not in the locked package"):
        copy(requirements(tmp_path, "a.missing", "1.0.0"), tmp_path, tmp_path / "packages")
