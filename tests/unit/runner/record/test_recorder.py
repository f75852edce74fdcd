"""The recorder with a real reconciler: what it records, and that it never fails a run; the digest of a role."""

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
from rolecall.runner.config.content import Content, PlaybookContent, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.record import recorder as recorder_module
from rolecall.runner.record.reader import read_record
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Ending, RecordMemory
from rolecall.runner.runs.content import digest_of_content
from rolecall.runner.runs.events import HIDDEN
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from rolecall.runner.secrets.values import marked_texts, secret_texts
from tests.support.reconciler_rig import Rig, make_rig
from tests.support.things import MANIFEST, THING
from tests.support.world import World
from tests.unit.fake_cluster import FakeCluster
from tests.unit.manual_clock import ManualClock
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, primary


def recorder(world: World, **settings: Any) -> Recorder:
    found = Recorder.of_settings(replace(Settings(), **settings), world.client)
    assert found is not None
    return found


@pytest.fixture
async def rig(world: World, tmp_path: Path) -> Rig:
    await world.create(MANIFEST)
    (tmp_path / "roles" / "thing").mkdir(parents=True)
    return make_rig(world, tmp_path)


async def test_reconcile_writes_a_record_with_its_outcome_and_status(rig: Rig, tmp_path: Path) -> None:
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


def test_record_starts_at_the_time_of_the_clock(world: World) -> None:
    """A simulated operator records no time of the system."""
    clock = ManualClock()
    record = Recorder(world.client, RecordMemory(0), clock=clock).start(
        Watch(THING, RoleContent(Path("/r"))), primary(), "7", ()
    )
    assert record.started.timestamp() == clock.now()


async def test_record_has_no_token_of_the_operator(rig: Rig, cluster: FakeCluster, tmp_path: Path) -> None:
    """A role can read it from the file of the service account."""
    cluster.token = "eyJhbGciOi.JSUzI1NiIs.ImtpZCI6"  # noqa: S105 - of no cluster
    await rig.world.patch(THING, "one", {"spec": {"copied": cluster.token}})
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    await rig.reconcile()
    (path,) = (tmp_path / "records").glob("*.jsonl")
    assert "copied" in path.read_text()
    assert cluster.token not in path.read_text()


async def test_records_of_the_dashboard_are_in_memory_until_their_object_is_deleted(rig: Rig) -> None:
    rig.reconciler.recorder = kept = recorder(rig.world, ui_bind_address="127.0.0.1:8090")
    await rig.reconcile()
    await rig.reconcile()
    assert [record.ident for record in kept.memory.runs(THING, rig.key)] == [each.ident for each in rig.runner.jobs]
    await rig.world.delete(THING, "one")
    await rig.reconcile()
    assert not kept.memory.runs(THING, rig.key)


async def test_no_record_stays_in_memory_without_a_dashboard(rig: Rig, tmp_path: Path) -> None:
    rig.reconciler.recorder = kept = recorder(rig.world, record_directory=tmp_path / "records")
    record = kept.start(rig.reconciler.watch, await rig.thing(), "1", ())
    record.on_exchange(exchange("GET", CONFIG_MAPS, None, config_map("one")))
    assert kept.memory.bodies.stored_bytes > 0
    await kept.finish(rig.reconciler.watch, record, Ending("succeeded"))
    assert (kept.memory.runs(THING, rig.key), kept.memory.bodies.stored_bytes) == ((), 0)


async def test_unwritable_record_does_not_fail_the_run(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "records").write_text("this is no directory")
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    assert not (await rig.reconcile()).failed


async def test_error_is_logged_without_recorded_text(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("planted-text of a record")

    monkeypatch.setattr(recorder_module, "document_of", fail)
    rig.reconciler.recorder = recorder(rig.world, record_directory=tmp_path / "records")
    with capture_logs() as lines:
        assert not (await rig.reconcile()).failed
    (line,) = [line for line in lines if line["event"] == "Failed to write the record of a run"]
    assert re.fullmatch(r"ValueError at .*test_recorder.py:\d+", line["error"])
    assert "planted" not in str(lines)


def test_nothing_is_recorded_without_memory_and_directory(world: World) -> None:
    assert Recorder.of_settings(replace(Settings(), record_memory_bytes=0), world.client) is None


@pytest.mark.parametrize(
    ("settings", "has_traces", "has_bodies"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"ui_bind_address": ":9000"}, False, True),
        ({"record_directory": Path("records")}, False, True),
    ],
)
def test_bodies_are_kept_only_for_those_who_read_them(
    world: World, settings: Mapping[str, Any], *, has_traces: bool, has_bodies: bool
) -> None:
    """A hidden failure is explained in any case."""
    found = Recorder.of_settings(replace(Settings(), **settings), world.client, has_traces=has_traces)
    assert found is not None
    record = found.start(Watch(THING, RoleContent(Path("/r"))), primary(), "7", ())
    record.on_exchange(exchange("POST", CONFIG_MAPS, config_map("1"), config_map("1"), 403))
    assert bool(found.memory.bodies.stored_bytes) is has_bodies
    failed = Outcome("failed", failures=(TaskFailure("Write", "localhost", HIDDEN, "task-1"),))
    assert "rejected its last request with 403: create configmaps" in record.explain_hidden(failed).message


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


def test_fields_that_the_watch_marks_are_secret() -> None:
    paths = (parse_path("$.spec.password"), parse_path("$.spec.users[*]"))
    watch = Watch(THING, RoleContent(Path("/r")), sensitive=paths)
    obj = {"spec": {"password": "one", "users": [{"name": "two"}, "three"], "size": 1}}
    assert marked_texts(watch, obj) == ["one", "two", "three"]


@pytest.fixture
def role(tmp_path: Path) -> Path:
    role = tmp_path / "roles" / "demo"
    for name in ("tasks/main.yml", "templates/a.j2", "README.md"):
        (role / name).parent.mkdir(parents=True, exist_ok=True)
        (role / name).write_text(name)
    return role


def digest(*contents: Content) -> str:
    return digest_of_content(contents)


def test_copy_elsewhere_has_the_same_digest(role: Path, tmp_path: Path) -> None:
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
def test_files_that_ansible_loads_are_digested(role: Path, change: Callable[[Path], None], *, is_other: bool) -> None:
    before = digest(RoleContent(role))
    change(role)
    assert (digest(RoleContent(role)) != before) == is_other


def test_roles_next_to_a_playbook_count_and_other_files_do_not(role: Path, tmp_path: Path) -> None:
    (tmp_path / "demo.yml").write_text("- hosts: localhost")
    before = digest(PlaybookContent(tmp_path / "demo.yml"))
    (tmp_path / "notes.txt").write_text("of no interest")
    assert digest(PlaybookContent(tmp_path / "demo.yml")) == before
    (role / "tasks/main.yml").write_text("other")
    assert digest(PlaybookContent(tmp_path / "demo.yml")) != before


def test_content_of_a_finalizer_counts(role: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.yml").write_text("- hosts: localhost")
    assert digest(RoleContent(role)) != digest(RoleContent(role), PlaybookContent(tmp_path / "clean.yml"))
