"""What a recorder keeps of the runs of a real reconciler, and that it never fails one."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.jsonpath import parse_path
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.record import recorder as recorder_module
from rolecall.runner.record.reader import read_record
from rolecall.runner.record.recorder import Recorder, marked_texts, secret_texts
from tests.integration.things import MANIFEST, THING
from tests.integration.world import World
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.reconcile.rig import FAILURE, Rig, make_rig


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
    def fail(*_: object) -> None:
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
