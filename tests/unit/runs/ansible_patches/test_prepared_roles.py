"""What the server has parsed and compiled of roles is used while it is what a run would make of them, and no longer."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible._internal._templating import _engine
from ansible._internal._templating._jinja_bits import AnsibleEnvironment
from ansible.parsing import dataloader
from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template

from rolecall.runs.ansible_patches import compiled_templates
from rolecall.runs.ansible_patches.compiled_templates import Templates
from rolecall.runs.ansible_patches.parsed_yaml import Documents

TASKS = """\
- name: Say
  debug:
    msg: "{{ word | upper }} of many"
  when: word is string and word | length > 1
"""


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Give a role of one task."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "main.yml").write_text(TASKS)
    return tmp_path


@pytest.fixture(autouse=True)
def ansible_as_it_was() -> Iterator[None]:
    """Undo what is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataLoader, "load", DataLoader.load)
        patch.setattr(dataloader, "copy", copy)
        patch.setattr(AnsibleEnvironment, "compile", AnsibleEnvironment.compile)
        patch.setattr(AnsibleEnvironment, "compile_expression", AnsibleEnvironment.compile_expression)
        yield


def _load(role: Path, *, trusted: bool = True) -> Any:
    return DataLoader().load_from_file(str(role / "tasks" / "main.yml"), trusted_as_template=trusted)


def test_a_file_is_not_parsed_again(role: Path) -> None:
    prepared = Documents.of_roles([role])
    (document,) = prepared.by_path.values()
    prepared.install()
    found = _load(role)
    assert found is document.twin
    assert found == document.original
    assert found is not document.original


def test_a_second_reading_gives_something_new(role: Path) -> None:
    Documents.of_roles([role]).install()
    first = _load(role)
    first[0]["name"] = "changed"
    assert _load(role)[0]["name"] == "Say"


def test_a_changed_file_is_read_anew(role: Path) -> None:
    Documents.of_roles([role]).install()
    (role / "tasks" / "main.yml").write_text(TASKS.replace("Say", "Bay"))
    assert _load(role)[0]["name"] == "Bay"


def test_text_that_is_not_trusted_is_read_anew(role: Path) -> None:
    prepared = Documents.of_roles([role])
    (document,) = prepared.by_path.values()
    prepared.install()
    assert _load(role, trusted=False) is not document.twin


def test_a_file_that_cannot_be_parsed_is_left_to_the_run(role: Path) -> None:
    (role / "tasks" / "main.yml").write_text("- {")
    (role / "tasks" / "secret.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    assert not Documents.of_roles([role]).by_path


def _compiled(role: Path) -> Templates:
    return Templates.of_documents([document.original for document in Documents.of_roles([role]).by_path.values()])


def _count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    counted: list[str] = []
    original = AnsibleEnvironment.compile

    def compile_(environment: Any, source: Any, *args: Any, **options: Any) -> Any:
        counted.append(str(source))
        return original(environment, source, *args, **options)

    monkeypatch.setattr(AnsibleEnvironment, "compile", compile_)
    return counted


def test_templates_and_conditions_are_not_compiled_again(role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = _compiled(role)
    counted = _count_compilations(monkeypatch)
    prepared.install()
    engine = _engine.TemplateEngine(loader=None, variables={"word": "one"})
    assert engine.template(trust_as_template("{{ word | upper }} of many")) == "ONE of many"
    assert engine.evaluate_conditional(trust_as_template("word is string and word | length > 1")) is True
    assert not counted
    assert engine.template(trust_as_template("{{ word | lower }} of many")) == "one of many"
    assert counted == ["{{ word | lower }} of many"]


def test_a_filter_that_wants_to_be_passed_something_else_is_compiled_for_again(
    role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = _compiled(role)
    counted = _count_compilations(monkeypatch)
    prepared.install()
    monkeypatch.setattr(compiled_templates, "_passed", lambda *_: "context")
    engine = _engine.TemplateEngine(loader=None, variables={"word": "one"})
    assert engine.template(trust_as_template("{{ word | upper }} of many")) == "ONE of many"
    assert counted == ["{{ word | upper }} of many"]
