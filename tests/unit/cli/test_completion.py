"""``rolecall completion``: the scripts work in the shells that are installed, and start no Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.cli.completion import SHELLS
from rolecall.cli.main import COMMANDS, main

COMPLETE = """
source "$1"
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
"$(complete -p rolecall | sed -E 's/.* -F ([^ ]+).*/\\1/')" rolecall
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the printed script."""
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rolecall v", {"validate", "version"}),
        ("rolecall cluster st", {"start", "status", "stop"}),
        ("rolecall rbac --w", {"--write", "--watches-file"}),
        ("rolecall version --output j", {"json"}),
    ],
)
def test_bash_completes_commands_flags_and_choices(
    words: str, expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rolecall").write_text(script("bash", capsys))
    program = COMPLETE.format(words=words)
    command = ["bash", "-c", program, "bash", str(tmp_path / "rolecall")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_script_has_each_command_and_valid_syntax(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert all(command in text for command in COMMANDS)
    assert "watches-file" in text
    file = tmp_path / "script"
    file.write_text(text)
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(file)], check=True)


def test_unknown_shell_is_an_invalid_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["completion", "csh"])
    assert raised.value.code == 2
    assert "invalid choice: 'csh'" in capsys.readouterr().err


def test_other_commands_do_not_import_the_generator() -> None:
    script = "import sys, rolecall.cli.main as main; main.parser(); print('shtab' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
