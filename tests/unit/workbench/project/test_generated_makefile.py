"""The target ``image`` in the Makefile of a new project, with programs that only record their arguments."""

import os
import subprocess
from pathlib import Path

import pytest

from rolecall.workbench.project.scaffold import init_project

RECORDER = """#!/bin/sh
[ "$1" = info ] && exit {code}
echo "{name} $*" >> "{log}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "web", "web", "example.com").write()
    return tmp_path / "web"


def install(directory: Path, **codes: int) -> None:
    """Install engines whose daemon works (0) or doesn't (1)."""
    for name in ("docker", "podman", "buildah"):
        program = directory / name
        program.write_text(RECORDER.format(name=name, code=codes.get(name, 1), log=directory / "log"))
        program.chmod(0o755)


def make_image(project: Path, *variables: str) -> "subprocess.CompletedProcess[str]":
    """Run ``make image`` with the programs next to the project."""
    environment = {**os.environ, "PATH": f"{project.parent}:{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if name not in ("ENGINE", "MAKEFLAGS", "IMG")}
    command = ["make", "image", *variables]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("working", "used"),
    [(("docker", "podman"), "docker"), (("podman", "buildah"), "podman"), (("buildah",), "buildah")],
)
def test_image_is_built_by_the_first_engine_that_works(project: Path, working: tuple[str, ...], used: str) -> None:
    install(project.parent, **dict.fromkeys(working, 0))
    assert make_image(project, "IMG=registry.example/web:1", "RUNNER=runner:1").returncode == 0
    assert (project.parent / "log").read_text() == (
        f"{used} build --file build/Dockerfile --tag registry.example/web:1 --build-arg RUNNER=runner:1 .\n"
    )


def test_engine_of_the_user_takes_precedence_with_its_options(project: Path) -> None:
    install(project.parent, docker=0)
    assert make_image(project, "ENGINE=buildah --storage-driver vfs").returncode == 0
    assert (project.parent / "log").read_text().startswith("buildah --storage-driver vfs build ")


def test_without_an_engine_that_works_the_error_names_all(project: Path) -> None:
    install(project.parent)
    done = make_image(project)
    assert done.returncode != 0
    assert "install docker, podman or buildah" in done.stderr
    assert "start its daemon" in done.stderr
