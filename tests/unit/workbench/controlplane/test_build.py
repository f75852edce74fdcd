import re
from pathlib import Path

import pytest

from rolecall.workbench.controlplane import binaries as build
from rolecall.workbench.controlplane.download import KUBERNETES, PROGRAM_NAMES, PROGRAMS
from rolecall.workbench.controlplane.errors import BinariesUnavailableError

GO_STUB = """#!/bin/sh
case "$1" in
env) echo {version} ;;
list)
  echo "go: downloading some/module v1" >&2
  for argument in "$@"; do echo "$argument"; done
  {listing} ;;
build)
  echo "some/package" >&2
  output=; packages=
  while [ $# -gt 0 ]; do case "$1" in
    -o) output=$2; shift 2 ;;
    -*) shift ;;
    */*) packages="$packages $1"; shift ;;
    *) shift ;;
  esac; done
  for package in $packages; do
    if [ -d "$output" ]; then echo built > "$output/${{package##*/}}"; else echo built > "$output"; fi
  done
  {ending} ;;
esac
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a Go that builds nothing but writes the files at the front of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return _install(folder / "go", "go1.26.3", "exit 0")


def _install(path: Path, version: str, ending: str, listing: str = "exit 0") -> Path:
    path.write_text(GO_STUB.format(version=version, ending=ending, listing=listing))
    path.chmod(0o755)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Give the folder to build into."""
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.mark.usefixtures("go")
def test_every_program_is_built_and_progress_says_what_remains(target: Path) -> None:
    said: list[str] = []
    build.build_programs(PROGRAMS, target, said.append)
    assert sorted(path.name for path in target.iterdir()) == sorted(PROGRAM_NAMES)
    assert "minutes" in said[0]
    assert [line for line in said if line.startswith("Step")] == [
        "Step 1 of 2: etcd",
        "Step 2 of 2: kube-apiserver, kube-controller-manager, kube-scheduler, kwok, kubectl",
    ]
    assert any(re.search(r"2 of \d+ packages compiled", line) for line in said)
    assert said[-1].startswith("Built in")


@pytest.mark.usefixtures("go")
@pytest.mark.parametrize("names", [["etcd"], ["kwok"], ["kubectl", "kwok"]])
def test_only_the_programs_that_are_missing_are_built(target: Path, names: list[str]) -> None:
    build.build_programs([program for program in PROGRAMS if program.name in names], target, print)
    assert sorted(path.name for path in target.iterdir()) == names


def test_modules_that_cannot_be_downloaded_end_the_build_but_not_what_is_built(go: Path, target: Path) -> None:
    _install(go, "go1.26.3", "exit 0", "echo no such host >&2; exit 1")
    with pytest.raises(BinariesUnavailableError, match=r"go list ended with exit code 1: .*no such host"):
        build.build_programs(PROGRAMS, target, print)
    assert [path.name for path in target.iterdir()] == ["etcd"]


@pytest.mark.parametrize(("gigabytes", "expected"), [(2, {}), (3, {}), (4, {"GOGC": "800"}), (8, {"GOGC": "800"})])
def test_garbage_is_collected_rarely_only_where_there_is_memory(gigabytes: int, expected: dict[str, str]) -> None:
    assert build.garbage_collection(gigabytes * 2**30, processors=2) == expected


def test_a_build_that_fails_shows_what_the_compiler_said(go: Path, target: Path) -> None:
    _install(go, "go1.26.3", "echo cannot find module >&2; exit 3")
    with pytest.raises(BinariesUnavailableError, match=r"ended with exit code 3: .*cannot find module"):
        build.build_programs(PROGRAMS, target, print)


def test_a_go_that_is_too_old_is_refused_with_its_version(go: Path, target: Path) -> None:
    _install(go, "go1.25.9", "exit 0")
    with pytest.raises(BinariesUnavailableError, match=r"'go1\.25\.9'; expected Go 1\.26"):
        build.build_programs(PROGRAMS, target, print)


def test_no_go_says_what_is_missing(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BinariesUnavailableError, match="no 'go' found on PATH"):
        build.build_programs(PROGRAMS, target, print)


def test_a_version_that_kubectl_can_read_is_linked_into_the_programs() -> None:
    assert f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}" in build.linker_flags()
