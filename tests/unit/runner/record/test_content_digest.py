"""The digest of a role tells whether two runs worked with the same code, on whatever machine."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.runner.config.content import Content, PlaybookContent, RoleContent
from rolecall.runner.record.recorder import digest_of_content


@pytest.fixture
def role(tmp_path: Path) -> Path:
    role = tmp_path / "roles" / "demo"
    for name in ("tasks/main.yml", "templates/a.j2", "README.md"):
        (role / name).parent.mkdir(parents=True, exist_ok=True)
        (role / name).write_text(name)
    return role


def digest(*contents: Content) -> str:
    return digest_of_content(contents)


def test_a_copy_elsewhere_has_the_same_digest(role: Path, tmp_path: Path) -> None:
    shutil.copytree(role, tmp_path / "copy", copy_function=shutil.copyfile)
    assert digest(RoleContent(role)) == digest(RoleContent(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        (lambda role: (role / "tasks/main.yml").write_text("other"), True),
        (lambda role: (role / "templates/a.j2").rename(role / "templates/b.j2"), True),
        (lambda role: (role / "README.md").write_text("other"), False),
        (lambda role: os.mkfifo(role / "tasks/pipe"), False),
        (lambda role: (role / "tasks/link").symlink_to("nowhere"), False),
        (lambda role: os.utime(role / "tasks/main.yml", (1, 1)), False),
    ],
    ids=["content", "name", "no code", "pipe", "dead link", "time"],
)
def test_what_ansible_loads_decides(role: Path, change: Callable[[Path], None], is_other: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    before = digest(RoleContent(role))
    change(role)
    assert (digest(RoleContent(role)) != before) == is_other


def test_the_roles_beside_a_playbook_count_and_other_files_there_do_not(role: Path, tmp_path: Path) -> None:
    (tmp_path / "demo.yml").write_text("- hosts: localhost")
    before = digest(PlaybookContent(tmp_path / "demo.yml"))
    (tmp_path / "notes.txt").write_text("of no interest")
    assert digest(PlaybookContent(tmp_path / "demo.yml")) == before
    (role / "tasks/main.yml").write_text("other")
    assert digest(PlaybookContent(tmp_path / "demo.yml")) != before


def test_the_content_of_a_finalizer_counts(role: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.yml").write_text("- hosts: localhost")
    assert digest(RoleContent(role)) != digest(RoleContent(role), PlaybookContent(tmp_path / "clean.yml"))
