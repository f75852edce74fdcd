"""What is no whole record is refused in one line, by ``rolecall record`` too."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.cli.main import main
from rolecall.record.reader import RecordError, read_record
from tests.unit.record.records import CONFIG_MAPS, config_map, exchange, write_record


def newer(text: str) -> str:
    head, *rest = text.splitlines(keepends=True)
    return "".join([json.dumps(json.loads(head) | {"format": 2}) + "\n", *rest])


BAD: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda _: "", "is empty"),
    "blank": (lambda _: " \n", "is empty"),
    "newer": (newer, "format 2"),
    "cut between lines": (lambda text: "".join(text.splitlines(keepends=True)[:-1]), "is cut"),
    "cut within a line": (lambda text: text[: len(text) // 2], "cut or was edited"),
    "cut before the last line end": (lambda text: text[:-1], "is cut"),
    "edited": (lambda text: text.replace('"changed"', '"ok"'), "was edited"),
    "a line removed": (
        lambda text: "".join(text.splitlines(keepends=True)[:1] + text.splitlines(keepends=True)[2:]),
        "was edited",
    ),
    "something else": (lambda _: "apiVersion: v1\n", "not the head of a record"),
    "other JSON": (lambda _: '{"kind": "Pod"}\n', "not the head of a record"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_record_is_refused_in_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, reason = BAD[case]
    path = write_record(tmp_path / "one.jsonl", exchange("GET", CONFIG_MAPS, None, config_map("1")))
    path.write_text(spoil(path.read_text()))
    with pytest.raises(RecordError, match=reason):
        read_record(path)
    assert main(["record", "show", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"rolecall record: {path}: ")
    assert printed.err.count("\n") == 1


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "show", str(tmp_path / "nothing")]) == 1
    assert (
        capsys.readouterr().err == f"rolecall record: {tmp_path}/nothing: cannot be read: No such file or directory\n"
    )
    assert main(["record", "list", str(tmp_path / "nothing")]) == 1


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    odd = 'a\u2028b "quoted" \\ é'
    path = write_record(tmp_path / "one.jsonl", exchange("POST", CONFIG_MAPS, config_map(odd), config_map(odd), 201))
    record = read_record(path)
    assert record.exchanges[0]["request"]["json"] == config_map(odd)
    assert (record.kind, record.name, record.end["outcome"]) == ("Demo", "ns/one", "succeeded")


def test_show_prints_tasks_with_their_requests_and_what_writes_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_list_shows_whole_records_and_names_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "1.jsonl")
    (tmp_path / "2.jsonl").write_text("")
    assert main(["record", "list", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    header, row = printed.out.splitlines()
    assert header.split() == ["STARTED", "KIND", "NAME", "OUTCOME", "TOOK", "TASKS", "REQUESTS", "FILE"]
    assert row.split()[1:] == ["Demo", "ns/one", "succeeded", "250ms", "1", "0", "1.jsonl"]
    assert "2.jsonl: the file is empty" in printed.err
