from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.plugins.loader import action_loader
from ansible.template import Templar
from ansible_collections.rolecall.util.plugins.action.requeue_after import ActionModule

from rolecall.kube.quantities import parse_duration


def run(**arguments: Any) -> dict[str, Any]:
    task, loader = Task(), DataLoader()
    task.action = "rolecall.util.requeue_after"
    task.args = arguments
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
    parts = {"connection": connection, "play_context": None, "loader": loader, "templar": Templar(loader)}
    action = ActionModule(task=task, shared_loader_obj=action_loader, **parts)
    result: dict[str, Any] = action.run(task_vars={})
    return result


@pytest.mark.parametrize("time", ["1h30m", "10s", "500ms", "1.5s", "0", "0s"])
def test_duration_is_returned_and_valid_for_the_operator(time: str) -> None:
    result = run(time=time)
    assert (result["period"], result["changed"]) == (time, False)
    assert parse_duration(result["period"]) >= 0


def test_time_is_returned_unchanged() -> None:
    result = run(at=1_800_000_000_000)
    assert (result["at"], result["changed"]) == (1_800_000_000_000, False)
    assert "period" not in result


@pytest.mark.parametrize("time", ["", "10", "soon", "-1s", "1d", "1s more", "\uff11s"])
def test_invalid_duration_is_an_error(time: str) -> None:
    with pytest.raises(AnsibleError, match=f"found {time!r}"):
        run(time=time)


@pytest.mark.parametrize("arguments", [{}, {"time": "1s", "at": 1}, {"after": "1s"}])
def test_exactly_one_option_is_required(arguments: dict[str, Any]) -> None:
    with pytest.raises(AnsibleError):
        run(**arguments)
