import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rolecall.runner.record.document import document_of
from rolecall.runner.record.files import RecordFiles
from rolecall.runner.record.run_record import Ending
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import exchange, make_record
from tests.unit.system.test_files import give_away

DISCOVERY = {"kind": "APIResourceList", "resources": []}


def write(
    files: RecordFiles, seconds: int, outcome: str = "succeeded", discovery: Mapping[str, object] = DISCOVERY
) -> Path:
    record = make_record(exchange("GET", "/api/v1", None, dict(discovery)))
    record = replace(record, started=record.started + timedelta(seconds=seconds), ending=Ending(outcome))
    return files.write(record, document_of(record))


def test_files_are_private_and_discovery_is_stored_once(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path / "records", 1 << 20)
    write(files, 0)
    write(files, 1)
    files.write_access(DEMO, {"format": 1})
    found = [path for path in (tmp_path / "records").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}
    directories = [tmp_path / "records", *(path for path in (tmp_path / "records").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in directories} == {0o700}
    assert sorted(path.parent.name for path in found) == ["access", "discovery", "records", "records"]


def test_oldest_records_are_removed_first_and_failures_last(tmp_path: Path) -> None:
    length = write(RecordFiles(tmp_path / "measure", 1 << 20), 0).stat().st_size
    directory = tmp_path / "records"
    failed = write(RecordFiles(directory, 1 << 20), 0, "failed")
    old = write(RecordFiles(directory, 1 << 20), 1)
    files = RecordFiles(directory, 3 * length)
    new = [write(files, number) for number in (2, 3)]
    assert sorted(directory.glob("*.jsonl")) == sorted([failed, *new])
    assert not old.exists()
    newest = write(RecordFiles(directory, 1), 4)
    assert list(directory.glob("*.jsonl")) == [newest]


def test_discovery_stays_while_a_record_may_refer_to_it(tmp_path: Path) -> None:
    length = write(RecordFiles(tmp_path / "measure", 1 << 20), 0).stat().st_size
    directory = tmp_path / "records"
    files = RecordFiles(directory, int(2.5 * length))
    write(files, 0, discovery=DISCOVERY | {"groupVersion": "v0"})
    first = set((directory / "discovery").iterdir())
    for second in (1, 2):
        write(files, second)
    assert not first & set((directory / "discovery").iterdir()), "the record that referred to it was removed"
    for second in (3, 1):  # a run may end after those that began later
        write(files, second, discovery=DISCOVERY | {"groupVersion": "v3"})
    assert len(set((directory / "discovery").iterdir())) == 2
    for second in (4, 5):
        write(files, second, discovery=DISCOVERY | {"groupVersion": "v3"})
    (last,) = (directory / "discovery").iterdir()
    assert json.loads(last.read_text())["groupVersion"] == "v3"


def test_record_removed_by_a_user_does_not_count(tmp_path: Path) -> None:
    length = write(RecordFiles(tmp_path / "measure", 1 << 20), 0).stat().st_size
    files = RecordFiles(tmp_path / "records", 2 * length)
    first, second = (write(files, number) for number in (0, 1))
    second.unlink()
    third = write(files, 2)
    assert sorted((tmp_path / "records").glob("*.jsonl")) == [first, third]


def test_directory_of_another_user_in_a_shared_directory_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "records").mkdir()
    give_away(tmp_path / "records", monkeypatch)
    with pytest.raises(PermissionError, match="belongs to another user"):
        write(RecordFiles(tmp_path / "records", 1 << 20), 0)
