"""Runs use the server's parsed files and compiled templates of roles while these are current."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible import template
from ansible.parsing import dataloader
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.conditional import Conditional

from rolecall.runner.warm.ansible_patches import compiled_templates
from rolecall.runner.warm.ansible_patches.compiled_templates import Templates
from rolecall.runner.warm.ansible_patches.parsed_yaml import Documents

HAS_TRUST = hasattr(template, "trust_as_template")
"""Whether this ansible-core distinguishes strings that are templates: 2.19 and newer."""
AnsibleEnvironment: Any = type(template.Templar(DataLoader(), {}).environment)

TASKS = """\
- name: Say
  debug:
    msg: "{{ word | upper }} of many"
  when: word is string and word | length > 1
"""


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Return a role of one task."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "main.yml").write_text(TASKS)
    return tmp_path


@pytest.fixture(autouse=True)
def ansible_as_it_was() -> Iterator[None]:
    """Restore the replaced functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataLoader, "load", DataLoader.load)
        patch.setattr(dataloader, "copy", copy)
        patch.setattr(AnsibleEnvironment, "compile", AnsibleEnvironment.compile)
        patch.setattr(AnsibleEnvironment, "compile_expression", AnsibleEnvironment.compile_expression)
        yield


def _load(role: Path, *, trusted: bool = True) -> Any:
    options = {"trusted_as_template": trusted} if HAS_TRUST else {}
    return DataLoader().load_from_file(str(role / "tasks" / "main.yml"), **options)


def _templated(text: str, word: str) -> object:
    trusted = template.trust_as_template(text) if HAS_TRUST else text
    return template.Templar(DataLoader(), {"word": word}).template(trusted)


def _holds(condition: str, word: str) -> bool:
    templar = template.Templar(DataLoader(), {"word": word})
    if HAS_TRUST:
        return bool(templar.evaluate_conditional(template.trust_as_template(condition)))
    judge = Conditional(DataLoader())
    judge.when = [condition]
    return bool(judge.evaluate_conditional(templar, {"word": word}))


def test_unchanged_file_is_not_parsed_again(role: Path) -> None:
    prepared = Documents.of_roles([role])
    (document,) = prepared.by_path.values()
    prepared.install()
    found = _load(role)
    assert found is document.twin
    assert found == document.original
    assert found is not document.original


def test_second_read_returns_a_new_document(role: Path) -> None:
    Documents.of_roles([role]).install()
    first = _load(role)
    first[0]["name"] = "changed"
    assert _load(role)[0]["name"] == "Say"


def test_changed_file_is_parsed_again(role: Path) -> None:
    Documents.of_roles([role]).install()
    (role / "tasks" / "main.yml").write_text(TASKS.replace("Say", "Bay"))
    assert _load(role)[0]["name"] == "Bay"


@pytest.mark.skipif(not HAS_TRUST, reason="before ansible-core 2.19 every string is a template")
def test_untrusted_text_is_parsed_again(role: Path) -> None:
    prepared = Documents.of_roles([role])
    (document,) = prepared.by_path.values()
    prepared.install()
    assert _load(role, trusted=False) is not document.twin


def test_unparsable_and_encrypted_files_are_skipped(role: Path) -> None:
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


def test_known_templates_and_conditions_are_not_compiled_again(role: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = _compiled(role)
    counted = _count_compilations(monkeypatch)
    prepared.install()
    assert _templated("{{ word | upper }} of many", "one") == "ONE of many"
    assert _holds("word is string and word | length > 1", "one")
    assert not counted
    assert _templated("{{ word | lower }} of many", "One") == "one of many"
    assert counted == ["{{ word | lower }} of many"]


def test_template_is_compiled_again_if_a_filter_takes_another_argument(
    role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = _compiled(role)
    counted = _count_compilations(monkeypatch)
    prepared.install()
    monkeypatch.setattr(compiled_templates, "_passed", lambda *_: "context")
    assert _templated("{{ word | upper }} of many", "one") == "ONE of many"
    assert counted == ["{{ word | upper }} of many"]


@pytest.mark.parametrize("text", ["{{ 1000 | random }}", "{{ word ~ (1000 | random) }}"])
def test_filter_of_a_constant_is_evaluated_in_each_run(role: Path, text: str) -> None:
    (role / "tasks" / "main.yml").write_text(f'- debug: {{msg: "{text}"}}\n')
    prepared = _compiled(role)
    found = set()
    for _ in range(20):
        with pytest.MonkeyPatch.context() as patch:  # each run is a separate process
            patch.setattr(AnsibleEnvironment, "compile", AnsibleEnvironment.compile)
            patch.setattr(AnsibleEnvironment, "compile_expression", AnsibleEnvironment.compile_expression)
            prepared.install()
            found.add(_templated(text, "one"))
    assert len(found) > 1
