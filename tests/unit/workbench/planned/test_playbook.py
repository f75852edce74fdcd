import os
import subprocess
import sys
from pathlib import Path

import ansible

from rolecall.runner.warm.ansible_patches.fingerprints import ABSENT, Fingerprints
from rolecall.workbench.planned import playbook
from rolecall.workbench.planned.playbook import FINGERPRINTS, PATCH, patch_status


def test_the_locked_release_can_be_planned_with() -> None:
    assert patch_status().is_in_use


def test_every_declared_function_is_in_a_tested_release() -> None:
    known = Fingerprints.load(FINGERPRINTS).functions
    assert known.keys() == {*PATCH.functions, *PATCH.optional}
    assert [function for function in PATCH.functions if not known[function].keys() - {ABSENT}] == []


def test_nothing_runs_with_an_ansible_that_has_an_unknown_function(tmp_path: Path) -> None:
    """A plan that withholds less than it says would change something."""
    changed = tmp_path / "ansible" / "executor" / "task_executor.py"
    changed.parent.mkdir(parents=True)
    text = (Path(ansible.__file__).parent / "executor" / "task_executor.py").read_text()
    changed.write_text(text.replace("def _run_loop(self, items", "def _run_loop(self, /, items"))
    touched = tmp_path / "touched"
    play = tmp_path / "play.yml"
    play.write_text(f'[{{"hosts": "localhost", "tasks": [{{"ansible.builtin.file": "path={touched} state=touch"}}]}}]')
    command = [sys.executable, "-P", "-m", playbook.__name__, str(play)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "can't be planned with" in done.stderr
    assert "_run_loop of ansible-core" in done.stderr
    assert not touched.exists()
