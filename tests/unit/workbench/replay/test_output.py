"""Replays as text and as a JSON document."""

from pathlib import Path

from rolecall.runner.runs.outcome import TaskFailure
from rolecall.workbench.replay.comparison import BadRecord, Replays, replay_of
from rolecall.workbench.replay.output import document_of, lines_of, total
from rolecall.workbench.replay.recorded_cluster import RecordSource
from tests.unit.workbench.replay.runs import MAPS, ask, config_map, run_of, stored

WRITE = ask("POST", MAPS, config_map("1"), config_map("1"), 201)


def test_each_record_has_a_line_and_its_differences_by_task(tmp_path: Path) -> None:
    record = stored(tmp_path, run_of(WRITE, status={"ready": 1}))
    today = run_of(ask("POST", MAPS, config_map("2"), config_map("2"), 201), status={"ready": 2})
    replays = Replays(
        (replay_of(record, today, RecordSource(record)), BadRecord(tmp_path / "bad.jsonl", "bad.jsonl: is cut", 4))
    )
    text = [line.text for line in lines_of(replays, is_summary=False)]
    assert text[0].startswith("Demo ns/one: other writes  (")
    assert "  TASK one" in text
    assert f"    changed: POST {MAPS}" in text
    shown = {line.strip() for line in text}
    assert {"-    a: '1'", "+    a: '2'", "-  ready: 1", "+  ready: 2"} <= shown
    assert text[-1] == "2 records: 1 other writes, 1 not replayed"
    assert len(list(lines_of(replays, is_summary=True))) == 2
    first, second = document_of(replays)["records"]
    assert (first["result"], first["differences"][0]["task"]) == ("other writes", "one")
    assert (second["result"], second["exitCode"]) == ("not replayed", 4)
    assert total(Replays(())) == "0 records: nothing to replay"


def test_no_line_has_a_secret_value_or_a_control_character(tmp_path: Path) -> None:
    record = stored(tmp_path, run_of(WRITE))
    written = ask("POST", MAPS, config_map("a-planted-password"), config_map(""), 201)
    today = run_of(written, failures=(TaskFailure("one", "localhost", "no \x1b[31m a-planted-password"),))
    found = replay_of(record, today, RecordSource(record), secrets=("a-planted-password",))
    text = "\n".join(line.text for line in lines_of(Replays((found,)), is_summary=False))
    assert "planted" not in text
    assert "\x1b" not in text
    assert "    a: (sensitive)" in text
