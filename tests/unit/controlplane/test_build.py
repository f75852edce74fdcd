from pathlib import Path

import pytest

from rolecall.controlplane import build
from rolecall.controlplane.errors import BinariesUnavailableError
from rolecall.controlplane.versions import KUBERNETES, PROGRAM_NAMES, PROGRAMS

GO_STUB = """#!/bin/sh
case "$1" in
env) echo {version} ;;
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


def _install(path: Path, version: str, ending: str) -> Path:
    path.write_text(GO_STUB.format(version=version, ending=ending))
    path.chmod(0o755)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Give the folder to build into."""
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.mark.usefixtures("go")
def test_every_program_is_built_and_progress_is_told(target: Path) -> None:
    said: list[str] = []
    build.build_programs(PROGRAMS, target, said.append)
    assert sorted(path.name for path in target.iterdir()) == sorted(PROGRAM_NAMES)
    assert "minutes" in said[0]
    assert any("packages compiled" in line for line in said)
    assert said[-1].startswith("Built in")


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


def test_a_version_that_kubectl_can_read_is_linked_into_kubernetes_programs() -> None:
    for program in PROGRAMS:
        is_kubernetes = program.project == "kubernetes"
        flag = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
        assert (flag in build.linker_flags(program)) is is_kubernetes
