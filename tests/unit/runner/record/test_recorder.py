"""What a recorder keeps of the runs of a real reconciler, and that it never fails one.

The digest of a role tells whether two runs worked with the same code, on whatever machine.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.jsonpath import parse_path
from rolecall.kube.references import ObjectKey
from rolecall.runner.config.content import Content, PlaybookContent, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.record import recorder as recorder_module
from rolecall.runner.record.document import document_of
from rolecall.runner.record.memory import MAX_LINES, RecordMemory, RunHistory
from rolecall.runner.record.reader import read_record
from rolecall.runner.record.recorder import Recorder, digest_of_content
from rolecall.runner.record.run_record import Bodies
from rolecall.runner.record.secret_values import marked_texts, secret_texts
from tests.integration.things import MANIFEST, THING
from tests.integration.world import World
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.reconcile.rig import FAILURE, Rig, make_rig
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record


def recorder(world: World, **settings: Any) -> Recorder:
    found = Recorder.of_settings(replace(Settings(), **settings), world.client)
    assert found is not None
    return found


@pytest.fixture
async def rig(world: World, tmp_path: Path) -> Rig:
    await world.create(MANIFEST)
    (tmp_path / "roles" / "thing").mkdir(parents=True)
    return make_rig(world, tmp_path)


async def test_a_reconcile_leaves_a_record_with_its_outcome_and_the_status(rig: Rig, tmp_path: Path) -> None:
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    await rig.reconcile()
    (path,) = (tmp_path / "records").glob("*.jsonl")
    record = read_record(path)
    assert (record.head["causes"], record.end["outcome"]) == (["test"], "succeeded")
    assert record.end["status"] == (await rig.thing())["status"]
    assert record.head["watch"]["role"] == str(tmp_path / "roles" / "thing")
    assert record.head["content"].startswith("sha256:")
    access = json.loads((tmp_path / "records" / "access" / "Thing_v1_test.rolecall.dev.json").read_text())
    assert access["accesses"] == []


async def test_a_failed_reconcile_is_recorded_as_failed(rig: Rig, tmp_path: Path) -> None:
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    rig.runner.outcome = FAILURE
    await rig.reconcile()
    (path,) = (tmp_path / "records").glob("*.failed.jsonl")
    assert read_record(path).end["failures"] == [str(each) for each in FAILURE.failures]


async def test_the_token_of_the_operator_is_not_in_a_record(rig: Rig, cluster: FakeCluster, tmp_path: Path) -> None:
    """A role can read it from the file of the service account."""
    cluster.token = "eyJhbGciOi.JSUzI1NiIs.ImtpZCI6"  # noqa: S105 - of no cluster
    await rig.world.patch(THING, "one", {"spec": {"copied": cluster.token}})
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    await rig.reconcile()
    (path,) = (tmp_path / "records").glob("*.jsonl")
    assert "copied" in path.read_text()
    assert cluster.token not in path.read_text()


async def test_the_last_record_is_in_memory_until_its_object_is_gone(rig: Rig) -> None:
    rig.reconciler.recorder = kept = recorder(rig.world)
    await rig.reconcile()
    await rig.reconcile()
    record = kept.memory.get(THING, rig.key)
    assert record is not None
    assert record.ident == rig.runner.jobs[-1].ident
    await rig.world.delete(THING, "one")
    await rig.reconcile()
    assert kept.memory.get(THING, rig.key) is None


async def test_a_record_that_cannot_be_written_does_not_fail_the_run(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "records").write_text("this is no directory")
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    assert not (await rig.reconcile()).failed


async def test_what_goes_wrong_is_logged_without_what_was_recorded(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("planted-text of a record")

    monkeypatch.setattr(recorder_module, "document_of", fail)
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    with capture_logs() as lines:
        assert not (await rig.reconcile()).failed
    (line,) = [line for line in lines if line["event"] == "Could not write the record of a run"]
    assert re.fullmatch(r"ValueError at .*test_recorder.py:\d+", line["error"])
    assert "planted" not in str(lines)


def test_nothing_is_recorded_without_memory_and_directory(world: World) -> None:
    assert Recorder.of_settings(replace(Settings(), record_memory_bytes=0), world.client) is None


@pytest.mark.parametrize(
    ("environment", "secrets"),
    [
        ({"DB_PASSWORD": "hunter2!"}, ["hunter2!"]),
        ({"API_KEY": "abcdefgh", "apiToken": "ijklmnop"}, ["abcdefgh", "ijklmnop"]),
        ({"TOKEN_FILE": "/var/run/token", "PASSES": "3", "HOME": "somewhere"}, []),
        ({"db": {"user": "somebody", "password": "hunter2!"}}, ["hunter2!"]),
        ({"passwords": [{"of": "abcdefgh"}, 12345678]}, ["abcdefgh", "12345678"]),
        ({"env": [{"name": "DB_PASSWORD", "value": "hunter2!"}, {"name": "HOME", "value": "here"}]}, ["hunter2!"]),
    ],
)
def test_variables_are_secret_by_their_names(environment: Mapping[str, Any], secrets: list[str]) -> None:
    assert secret_texts(Watch(THING, RoleContent(Path("/r"))), environment) == secrets
    assert secret_texts(Watch(THING, RoleContent(Path("/r")), variables=environment), {}) == secrets


def test_what_the_watch_marks_in_the_object_is_secret() -> None:
    paths = (parse_path("$.spec.password"), parse_path("$.spec.users[*]"))
    watch = Watch(THING, RoleContent(Path("/r")), sensitive=paths)
    obj = {"spec": {"password": "one", "users": [{"name": "two"}, "three"], "size": 1}}
    assert marked_texts(watch, obj) == ["one", "two", "three"]


LONG = config_map("".join(f"{number:x}" for number in range(5000)))


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def test_the_last_record_of_an_object_replaces_the_one_before() -> None:
    memory = RecordMemory(1 << 20)
    first, second = (make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies) for _ in range(2))
    memory.add(first)
    taken = memory.bodies.stored_bytes
    memory.add(second)
    assert memory.get(DEMO, key("one")) is second
    assert memory.bodies.stored_bytes == taken


def test_records_stay_within_the_budget_and_the_oldest_go_first() -> None:
    memory = RecordMemory(8000)
    for name in "abcd":
        memory.add(make_record(name=name, bodies=memory.bodies))
    kept = [name for name in "abcd" if memory.get(DEMO, key(name))]
    assert kept == ["b", "c", "d"]


def test_a_record_larger_than_the_budget_is_not_kept_and_leaves_nothing() -> None:
    memory = RecordMemory(1000)
    memory.add(make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies))
    assert memory.get(DEMO, key("one")) is None
    assert memory.bodies.stored_bytes == 0


def test_an_object_that_is_gone_leaves_nothing() -> None:
    memory = RecordMemory(1 << 20)
    memory.add(make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies))
    memory.forget(DEMO, key("one"))
    assert (memory.get(DEMO, key("one")), memory.bodies.stored_bytes) == (None, 0)


def test_equal_bodies_are_stored_once_and_compressed() -> None:
    bodies = Bodies()
    text = b"the same list again " * 1000
    assert bodies.add(text) == bodies.add(text)
    assert bodies.stored_bytes < len(text) / 10
    bodies.drop(digest := bodies.add(text))
    assert bodies.get(digest) == text


def test_a_run_that_needs_more_room_is_recorded_without_further_bodies() -> None:
    record = make_record(*[exchange("GET", f"{CONFIG_MAPS}/{number}", None, LONG) for number in range(3)], room=1000)
    assert [kept.response for kept in record.exchanges] == [None, None, None]
    assert not record.is_complete


def test_several_records_of_an_object_are_kept_if_somebody_looks() -> None:
    memory = RecordMemory(1 << 20, max_runs=2)
    records = [make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies) for _ in range(3)]
    for number, record in enumerate(records):
        record.ident = str(number)
        memory.add(record)
    assert [record.ident for record in memory.runs(DEMO, key("one"))] == ["1", "2"]
    memory.forget(DEMO, key("one"))
    assert memory.bodies.stored_bytes == 0


def test_earlier_records_go_before_the_last_record_of_any_object() -> None:
    memory = RecordMemory(8000, max_runs=9)
    for ident, name in enumerate("abbbb"):
        record = make_record(name=name, bodies=memory.bodies)
        record.ident = str(ident)
        memory.add(record)
    assert memory.get(DEMO, key("a")) is not None
    assert [record.ident for record in memory.runs(DEMO, key("b"))] == ["3", "4"]


def test_a_snapshot_stays_whole_when_its_record_is_dropped() -> None:
    memory = RecordMemory(1 << 20)
    record = make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=memory.bodies)
    memory.add(record)
    snapshot = record.snapshot()
    before = document_of(record).text
    memory.forget(DEMO, key("one"))
    assert memory.bodies.stored_bytes == 0
    assert document_of(snapshot).text == before


def add(history: RunHistory, *idents: str, name: str = "one") -> None:
    for ident in idents:
        record = make_record(name=name)
        record.ident = ident
        history.add(record)


def idents(history: RunHistory, name: str = "one") -> list[str]:
    return [line.ident for line in history.of(DEMO, key(name))]


def test_a_line_says_when_how_long_why_and_how_it_ended() -> None:
    history = RunHistory()
    record = make_record()
    history.add(record)
    line = history.last(DEMO, key("one"))
    assert line is not None
    assert (line.started, line.seconds, line.outcome) == (record.started.timestamp(), 0.25, "succeeded")
    assert (line.causes, line.tasks, line.requests) == (("something changed",), 1, 0)


def test_the_newest_lines_of_an_object_come_first_and_are_bounded() -> None:
    history = RunHistory()
    add(history, *map(str, range(MAX_LINES + 2)))
    assert idents(history) == [str(number) for number in reversed(range(2, MAX_LINES + 2))]


def test_the_last_line_of_an_object_stays_whatever_happens_to_others() -> None:
    history = RunHistory(max_earlier=3)
    add(history, "a", name="quiet")
    add(history, *"bcdefgh", name="busy")
    assert idents(history, "quiet") == ["a"]
    assert idents(history, "busy") == ["h", "g", "f", "e"]


def test_an_object_that_is_gone_has_no_lines() -> None:
    history = RunHistory()
    add(history, "1")
    history.forget(DEMO, key("one"))
    assert (history.last(DEMO, key("one")), idents(history)) == (None, [])


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
