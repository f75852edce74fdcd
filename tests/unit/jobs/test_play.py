import os

import pytest

from rolecall.jobs.play import COLLECTIONS, Lines, Play


def test_a_description_survives_the_way_to_the_process() -> None:
    play = Play("1", "/w", role="/r/a", verbosity=2, grace_seconds=0.5, secrets={"TOKEN": "x"})
    assert Play.from_line(play.to_line()) == play


def test_secrets_are_not_in_what_is_printed_of_a_description() -> None:
    assert "s3cret" not in repr(Play("1", "/w", secrets={"TOKEN": "s3cret"}))


def test_a_playbook_is_run_by_its_path() -> None:
    assert Play("1", "/w", playbook="/p/site.yml").arguments == {"playbook": "/p/site.yml"}


@pytest.mark.parametrize(("gathering", "skip"), [(None, False), ("explicit", True), ("smart", False)])
def test_a_role_is_run_by_name_and_folder(monkeypatch: pytest.MonkeyPatch, gathering: str | None, skip: bool) -> None:  # noqa: FBT001
    monkeypatch.delenv("ANSIBLE_GATHERING", raising=False)
    if gathering:
        monkeypatch.setenv("ANSIBLE_GATHERING", gathering)
    arguments = Play("1", "/w", role="/opt/roles/foo").arguments
    expected = {"role": "foo", "roles_path": "/opt/roles/", "hosts": "localhost", "role_skip_facts": skip}
    assert arguments == expected


def test_the_collection_lies_where_ansible_looks_for_collections() -> None:
    assert COLLECTIONS.name == "collections"
    assert COLLECTIONS.parent.name == "rolecall"


def test_lines_reach_the_operator() -> None:
    reading, writing = os.pipe()
    Lines(writing).write("one")
    assert os.read(reading, 100) == b"one\n"
    os.close(reading)


def test_lines_are_dropped_when_nobody_reads_any_more() -> None:
    reading, writing = os.pipe()
    lines = Lines(writing)
    os.close(reading)
    lines.write("one")
    lines.write("two")
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
