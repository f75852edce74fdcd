"""An ansible-core with a changed function is still forked, without the patch of that function."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import ansible
import pytest
from structlog.testing import capture_logs

from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.starter import ForkserverStarter
from tests.parity.cases import CASES
from tests.parity.conftest import NOTE, start_cold
from tests.parity.stage import CONTENT, Stage
from tests.parity.test_parity import assert_has_worked

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOOPS = next(case for case in CASES if case.name == "loops")


@pytest.mark.parametrize(
    ("module", "change", "disabled"),
    [
        (
            "executor/task_executor.py",
            ("def _run_loop(self, items", "def _run_loop(self, /, items"),
            {"in-process-tasks"},
        ),
        (
            "executor/module_common.py",
            ("def _extract_interpreter(b_module_data):", "def _extract_interpreter(b_module_data, /):"),
            {"forked-modules", "in-process-tasks", "known-discovery", "module-host"},
        ),
        (
            "parsing/dataloader.py",
            ("def load_from_file(self, file_name", "def load_from_file(self, /, file_name"),
            {"parsed-yaml", "compiled-templates"},
        ),
    ],
    ids=["task_executor", "module_common", "dataloader"],
)
@pytest.mark.usefixtures("operator_environment")
async def test_changed_function_disables_only_its_patch_and_runs_succeed(
    module: str, change: tuple[str, str], disabled: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = change
    changed = tmp_path / "changed"
    shutil.copytree(Path(ansible.__file__).parent, changed / "ansible", ignore=shutil.ignore_patterns("__pycache__"))
    file = changed / "ansible" / module
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    monkeypatch.setenv("PYTHONPATH", os.fspath(changed))
    reported: list[PatchStatus] = []
    with capture_logs() as lines:
        async with ForkserverStarter([CONTENT / LOOPS.name], on_patches=reported.extend) as starter:
            assert starter.server
            await starter.server.ready  # without a limit: other work on the machine may delay it
            stage = Stage(ProcessRunner(starter), start_cold, tmp_path / "run")
            seen = await stage.run(replace(LOOPS, environment={}))
    assert_has_worked(seen, LOOPS)
    assert {status.name for status in reported if status.state == "disabled"} == disabled
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [{line["patch"], *line["also"]} for line in warnings] == [
        {status.name, *(each.name for each in reported if each.lacks == status.name)}
        for status in reported
        if status.state == "disabled" and not status.lacks
    ]
    assert [line for line in lines if line["event"] == NOTE and "ansible-playbook" in line["reason"]] == []
