import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.runner.runs.process_marks import PLAYBOOK_MODULE

SCRIPT = Path(sys.executable).with_name("ansible-playbook")
THRESHOLD = """
import gc, sys
from ansible.cli import playbook
from rolecall.runner.runs.ansible_playbook import main
playbook.main = lambda arguments: print(*arguments, gc.isenabled(), gc.get_threshold()[0] > 700)
main(["ansible-playbook", "-i", "hosts"])
"""


def printed(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["--no-such-option"], ["missing.yml"]])
def test_ansible_playbook_in_a_new_interpreter_is_the_installed_one(arguments: list[str]) -> None:
    found = printed(sys.executable, "-P", "-m", PLAYBOOK_MODULE, *arguments)
    assert found == printed(str(SCRIPT), *arguments)


def test_ansible_playbook_in_a_new_interpreter_collects_garbage_less_often() -> None:
    assert printed(sys.executable, "-c", THRESHOLD) == (0, "ansible-playbook -i hosts True True\n")
