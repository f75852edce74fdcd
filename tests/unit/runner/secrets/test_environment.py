import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from rolecall.kube.json_values import with_texts
from rolecall.runner.secrets.environment import HiddenText, hide_environment, redact_directory, redacted


def test_hidden_text_is_neither_in_json_nor_printed() -> None:
    hidden = HiddenText("s3cret")
    assert json.dumps({"TOKEN": hidden}) == '{"TOKEN": ["hidden"]}'
    assert "s3cret" not in f"{hidden} {hidden!r}"


def test_process_receives_hidden_text_in_the_clear() -> None:
    environment = os.environ | {"TOKEN": cast("str", HiddenText("s3cret"))}
    command = [sys.executable, "-c", "import os; print(os.environ['TOKEN'])"]
    assert subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout == "s3cret\n"


def test_only_harmless_variables_are_shown() -> None:
    hidden = hide_environment({"PATH": "/bin", "ANSIBLE_FORKS": "5", "DB_PASSWORD": "x"})
    assert (hidden["PATH"], hidden["ANSIBLE_FORKS"]) == ("/bin", "5")
    assert isinstance(hidden["DB_PASSWORD"], HiddenText)


def test_secrets_are_replaced_at_every_depth() -> None:
    value = {"a": ["x s3cret y", {"b": "s3cret"}, 3, None], "c": "fine"}
    shown = with_texts(value, lambda text: redacted(text, ["s3cret"]), with_keys=True)
    assert shown == {"a": ["x (hidden) y", {"b": "(hidden)"}, 3, None], "c": "fine"}


def test_output_is_redacted_and_partial_events_are_removed(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("token is s3cret\n")
    (tmp_path / "stderr").write_text("nothing\n")
    (tmp_path / "job_events").mkdir()
    for name in ("a-partial.json", "b-partial.json.tmp", "1-c.json"):
        (tmp_path / "job_events" / name).touch()
    redact_directory(tmp_path, ["s3cret"])
    assert (tmp_path / "stdout").read_text() == "token is (hidden)\n"
    assert (tmp_path / "stderr").read_text() == "nothing\n"
    assert [path.name for path in (tmp_path / "job_events").iterdir()] == ["1-c.json"]
    redact_directory(tmp_path / "missing", ["s3cret"])


def test_empty_secret_changes_nothing(tmp_path: Path) -> None:
    assert redacted("text", ["", "x"]) == "te(hidden)t"
    (tmp_path / "stdout").write_text("text")
    redact_directory(tmp_path, [""])
    assert (tmp_path / "stdout").read_text() == "text"
