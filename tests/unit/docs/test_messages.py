"""Log lines and conditions on the troubleshooting page are those of the program."""

import re

from tests.unit.docs.pages import PROJECT, prose

QUOTED = re.compile(r"`([A-Z][a-z]+ [^`]+)`")
SOURCES = "\n".join(path.read_text() for path in (PROJECT / "src/rolecall").rglob("*.py"))


def is_said(message: str) -> bool:
    return all(part.strip() in SOURCES for part in message.split("…"))


def test_every_message_that_is_quoted_is_in_the_program() -> None:
    quoted = QUOTED.findall(prose((PROJECT / "docs/guides/troubleshooting.md").read_text()))
    assert len(quoted) > 9
    assert [message for message in quoted if not is_said(message)] == []


def test_a_message_that_the_program_does_not_have_is_found() -> None:
    assert is_said("Reconcile started")
    assert not is_said("Reconcile has started")
