import os
import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.cli.main import COMMANDS, main
from tests.unit.runner.record.records import CONFIG_MAPS, config_map, exchange, write_record


def printed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Run the program until it exits; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    output = capsys.readouterr()
    return ended.value.code, output.out, output.err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = printed("--help", capsys=capsys)
    assert code == 0
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = printed(command, "--help", capsys=capsys)
    assert code == 0
    assert text.startswith(f"usage: rolecall {command}")


@pytest.mark.parametrize("arguments", [(), ("sing",), ("run", "--no-such-flag"), ("run", "extra")])
def test_a_command_line_that_cannot_be_meant_is_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, text = printed(*arguments, capsys=capsys)
    assert code == 2
    assert "usage: rolecall" in text


def test_the_package_is_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "rolecall", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "rolecall")


def test_no_command_waits_for_what_only_others_need() -> None:
    """Each command imports in its handler what is large, so that all of them start quickly."""
    script = "import sys, rolecall.cli.main; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "ansible", "ansible_runner", "jinja2", "kubernetes", "openshift"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("run", "--help"),
        ("version",),
        ("validate", "--schema"),
        ("validate", "--format=json"),
        ("record", "list", "records"),
        ("record", "show", "records/1.jsonl"),
        ("init", "--domain", "example.com", "web"),
    ],
    ids=" ".join,
)
def test_a_command_whose_reader_has_left_ends_silently(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "records").mkdir()
    write_record(tmp_path / "records/1.jsonl", exchange("GET", CONFIG_MAPS, None, config_map("1")))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rolecall", *arguments]
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    assert (done.returncode in (0, 141), done.stderr) == (True, b"")  # 0: argparse ignores the error for its help
