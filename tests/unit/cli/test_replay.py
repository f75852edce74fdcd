"""``rolecall replay``: what cannot be replayed is one line each, with its exit code, and the others go on."""

import shutil
from pathlib import Path

import pytest

from rolecall.cli.main import main
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, write_record

WATCHES = "- {version: v1, group: other.example.com, kind: Other, role: other}\n"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a record of a Demo, in the directory of a project that does not have this kind."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANSIBLE_ROLES_PATH", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_GATHERING"):
        monkeypatch.setenv(name, "")  # the command sets them, and they go with the test
        monkeypatch.delenv(name)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)
    (tmp_path / "roles/other/tasks").mkdir(parents=True)
    (tmp_path / "roles/other/tasks/main.yml").write_text("[]\n")
    (tmp_path / "watches.yaml").write_text(WATCHES)
    (tmp_path / "records").mkdir()
    return write_record(tmp_path / "records/2.jsonl", exchange("GET", CONFIG_MAPS, None, config_map("1")))


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    code = main(["replay", *arguments])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err.splitlines()


def test_a_kind_that_is_not_in_the_watches_is_one_line(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = replay(capsys, str(record))
    assert (code, out) == (1, ["1 record: 1 not replayed"])
    missing = "kind Demo of demo.example.com/v1 is not in watches.yaml: add it, or omit the record"
    assert err == [f"rolecall replay: {record}: {missing}"]


def test_kind_in_another_version_is_one_line(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("watches.yaml").write_text("- {version: v2, group: demo.example.com, kind: Demo, role: other}\n")
    _, _, [line] = replay(capsys, str(record))
    fix = "Replace it with a record of 'rolecall demo --record-dir DIR'"
    assert line == f"rolecall replay: {record}: its Demo has the version v1, but watches.yaml has v2. {fix}"


def test_a_role_that_is_not_there_is_one_line(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("watches.yaml").write_text(WATCHES + "- {version: v1, group: demo.example.com, kind: Demo, role: gone}\n")
    code, _, err = replay(capsys, str(record))
    assert code == 1
    assert len(err) == 1
    assert str(record) in err[0]
    assert "gone" in err[0]


def test_each_bad_record_of_a_directory_is_one_line_and_the_first_decides(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(record, record.with_name("4.jsonl"))
    record.with_name("1.jsonl").write_text("")
    record.with_name("3.jsonl").write_text(record.read_text()[:-10])
    code, out, err = replay(capsys, "records")
    assert (code, out) == (6, ["4 records: 4 not replayed"])
    assert [line.split(": ")[1] for line in err] == [f"records/{number}.jsonl" for number in (1, 2, 3, 4)]


def test_a_place_without_records_is_no_success(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record.unlink()
    code, _, err = replay(capsys, "records", "nowhere.jsonl")
    assert code == 9
    assert "contains no record" in err[0]
    assert err[1] == "rolecall replay: nowhere.jsonl: cannot be read: No such file or directory"


def test_a_watches_file_that_cannot_be_read_is_one_line(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = replay(capsys, str(record), "--watches-file", "gone.yaml")
    assert code == 1
    assert err == [
        f"rolecall replay: {record}: cannot be replayed: gone.yaml: cannot be read: No such file or directory"
    ]


def test_an_invalid_command_line_has_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay"])
    assert ended.value.code == 64
    assert "RECORD" in capsys.readouterr().err


@pytest.mark.usefixtures("record")
def test_the_output_is_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = replay(capsys, "records", "-o", "json")
    assert code == 1
    assert '"result": "not replayed"' in "\n".join(out)
