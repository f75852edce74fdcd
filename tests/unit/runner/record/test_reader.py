"""An incomplete record is rejected in one line, also by ``rolecall record``."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.runner.record.document import document_of
from rolecall.runner.record.reader import (
    EmptyRecordError,
    NotARecordError,
    RecordError,
    TruncatedRecordError,
    UnreadableRecordError,
    digest_of,
    read_record,
    to_line,
)
from rolecall.runner.record.run_record import Ending
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from tests.unit.docs.pages import PROJECT
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, make_record, write_record


def newer(text: str) -> str:
    head, *rest = text.splitlines(keepends=True)
    return "".join([json.dumps(json.loads(head) | {"format": 2}) + "\n", *rest])


def without_line(number: int, text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: number - 1] + lines[number:])


def without_field(name: str, text: str) -> str:
    """Return a record without a field in its second line and with the right digest, as a foreign program may write."""
    head, second, *rest, end = text.splitlines()
    lines = [head, to_line({key: value for key, value in json.loads(second).items() if key != name}), *rest]
    return "".join(f"{line}\n" for line in (*lines, to_line(json.loads(end) | {"digest": digest_of(lines)})))


BAD: dict[str, tuple[Callable[[str], str], str, int]] = {
    "cut between lines": (lambda text: "".join(text.splitlines(keepends=True)[:-1]), "is truncated", 4),
    "cut within a line": (lambda text: text[: len(text) // 2], "is truncated", 4),
    "cut within the first line": (lambda text: text[:100], "is truncated", 4),
    "cut after a head of another program": (lambda _: '{"format": 1, "type": "head"}', "is truncated", 4),
    "cut before the last line end": (lambda text: text[:-1], "is truncated", 4),
    "edited": (lambda text: text.replace('"changed"', '"ok"'), "was edited", 5),
    "a line removed": (lambda text: without_line(2, text), "was edited", 5),
    "a quote removed": (lambda text: text.replace('"type":"exchange"', '"type:"exchange"'), "was edited", 5),
    "a quote removed in the head": (lambda text: text.replace('"format"', '"format'), "was edited", 5),
    "other line ends": (lambda text: text.replace("\n", "\r\n"), "was edited", 5),
    "empty": (lambda _: "", "is empty", 6),
    "blank": (lambda _: " \n", "is empty", 6),
    "newer": (newer, "format 2", 7),
    "something else": (lambda _: "apiVersion: v1\n", "not the head of a record", 8),
    "other JSON": (lambda _: '{"kind": "Pod"}\n', "not the head of a record", 8),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_record_is_rejected_with_one_line_and_its_exit_code(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, reason, code = BAD[case]
    path = write_record(tmp_path / "one.jsonl", exchange("GET", CONFIG_MAPS, None, config_map("1")))
    path.write_bytes(spoil(path.read_text()).encode())
    with pytest.raises(RecordError, match=reason):
        read_record(path)
    for command in (["record", "show", str(path)], ["record", "list", str(tmp_path)]):
        assert main(command) == code
        printed = capsys.readouterr()
        assert len(printed.out.splitlines()) == ("list" in command)
        assert printed.err.startswith(f"rolecall record: {path}: ")
        assert printed.err.count("\n") == 1


def test_record_without_a_field_is_rejected_by_commands_that_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_record(tmp_path / "one.jsonl", exchange("GET", CONFIG_MAPS, None, config_map("1")))
    path.write_text(without_field("verb", path.read_text()))
    assert main(["record", "show", str(path)]) == NotARecordError.exit_code
    assert "line 2 has no field 'verb'" in capsys.readouterr().err
    assert main(["record", "list", str(tmp_path)]) == 0


def test_record_cut_within_a_character_is_truncated_and_other_bytes_are_not_a_record(tmp_path: Path) -> None:
    path = write_record(tmp_path / "one.jsonl", exchange("GET", CONFIG_MAPS, None, config_map("é")))
    content = path.read_bytes()
    path.write_bytes(content[: content.index("é".encode()) + 1])
    assert main(["record", "show", str(path)]) == TruncatedRecordError.exit_code
    path.write_bytes(gzip.compress(content))
    assert main(["record", "show", str(path)]) == NotARecordError.exit_code


def test_unreadable_path_is_rejected_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nothing"
    for command, reason in (
        (["record", "show", str(missing)], f"{missing}: cannot be read: No such file or directory"),
        (["record", "show", str(tmp_path)], f"{tmp_path}: cannot be read: Is a directory"),
        (["record", "list", str(missing)], f"{missing}: cannot be read: No such file or directory; expected the"),
    ):
        assert main(command) == UnreadableRecordError.exit_code
        printed = capsys.readouterr().err
        assert printed.startswith(f"rolecall record: {reason}")
        assert printed.count("\n") == 1


def test_each_kind_of_invalid_record_has_an_exit_code_in_help_and_reference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    codes = [kind.exit_code for kind in RecordError.__subclasses__()]
    assert len(set(codes)) == len(codes)
    assert min(codes) > 3  # 0 to 3 are what a command found out
    page = (PROJECT / "docs/reference/command-line.md").read_text()
    for command in (["record", "--help"], ["record", "list", "--help"], ["record", "show", "--help"]):
        with pytest.raises(SystemExit):
            main(command)
        text = " ".join(capsys.readouterr().out.split())
        for kind in RecordError.__subclasses__():
            assert f"{kind.exit_code} {kind.meaning}" in text
            assert f"| {kind.exit_code} | {kind.meaning} |" in page


def test_record_is_read_as_written(tmp_path: Path) -> None:
    odd = 'a\u2028b "quoted" \\ é'
    path = write_record(tmp_path / "one.jsonl", exchange("POST", CONFIG_MAPS, config_map(odd), config_map(odd), 201))
    record = read_record(path)
    assert record.exchanges[0]["request"]["json"] == config_map(odd)
    assert (record.kind, record.name, record.end["outcome"]) == ("Demo", "ns/one", "succeeded")


def test_show_prints_tasks_with_requests_and_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = config_map("1", resourceVersion="1"), config_map("2", resourceVersion="2")
    path = write_record(
        tmp_path / "one.jsonl",
        exchange("GET", f"{CONFIG_MAPS}/a", None, before),
        exchange("PATCH", f"{CONFIG_MAPS}/a", {"data": {"a": "2"}}, after),
        exchange("GET", f"{CONFIG_MAPS}/b", None, {"kind": "Status"}, 404),
    )
    assert main(["record", "show", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Demo ns/one: succeeded in 250ms"
    assert "  because  something changed" in lines
    task = lines.index("TASK Write: changed")
    shown = [line.strip() for line in lines[task + 1 : task + 9]]
    assert shown[0] == "/r/main.yml:3"
    assert shown[1].startswith("get    /api/v1/namespaces/ns/configmaps/a  200")
    assert [line for line in shown if line.startswith(("+", "-"))] == ["-  a: '1'", "+  a: '2'"]
    assert any("configmaps/b  404" in line for line in shown)


def test_list_shows_valid_records_and_reports_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "1.jsonl")
    (tmp_path / "2.jsonl").write_text("")
    (tmp_path / "3.jsonl").write_text("something else")
    assert main(["record", "list", str(tmp_path)]) == EmptyRecordError.exit_code
    printed = capsys.readouterr()
    header, row = printed.out.splitlines()
    assert header.split() == ["STARTED", "KIND", "NAME", "OUTCOME", "TOOK", "TASKS", "REQUESTS", "FILE"]
    assert row.split()[1:] == ["Demo", "ns/one", "succeeded", "250ms", "1", "0", "1.jsonl"]
    assert ["2.jsonl: the file is empty" in line for line in printed.err.splitlines()] == [True, False]


ATTACK = "\x1b]0;title\x07\x1b[2J\x9b31m\rname\u202egnp"


def test_control_characters_of_an_author_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Authors of objects and roles choose these texts, and others read them."""
    record = make_record(exchange("PUT", f"{CONFIG_MAPS}/a", config_map(ATTACK), config_map(ATTACK), 201))
    record.obj["metadata"]["name"] = ATTACK
    failed = RunEvent(name="runner_on_failed", task=ATTACK, task_id="2", host=ATTACK, message=ATTACK, task_path=ATTACK)
    record.on_event(failed)
    summary = Outcome("failed", failures=(TaskFailure(ATTACK, ATTACK, ATTACK),))
    record.ending = Ending("failed", summary, {ATTACK: ATTACK})
    path = tmp_path / "one.jsonl"
    path.write_text(document_of(record).text)
    path.with_name("two.jsonl").write_text("")
    for arguments in (["show", str(path)], ["list", str(tmp_path)], ["show", f"{tmp_path}/{ATTACK}"]):
        main(["record", *arguments])
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert "name" in text
        assert [each for each in text if not each.isprintable() and each not in "\n\t"] == []
