import time
from typing import Any, cast

import pytest

from rolecall.workbench.controlplane import cluster as readiness
from rolecall.workbench.controlplane.api_client import ApiClient, Response

READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {}}
TAINTED = READY | {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}}
UNKNOWN = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}, "spec": {}}


class _Answers:
    """Answers every request with the same object and remembers the requests."""

    def __init__(self, status: int, content: dict[str, Any]) -> None:
        self.response = Response(status, content)
        self.requests: list[tuple[str, str]] = []

    def get(self, path: str) -> Response:
        return self.request("GET", path)

    def request(self, method: str, path: str, _body: object = None) -> Response:
        self.requests.append((method, path))
        return self.response


def _server(answers: _Answers) -> ApiClient:
    return cast("ApiClient", answers)


@pytest.mark.parametrize(
    ("nodes", "expected"), [([READY], True), ([READY, TAINTED], False), ([UNKNOWN, READY], False), ([{}], False)]
)
def test_nodes_are_ready_when_all_of_them_take_pods(nodes: list[dict[str, Any]], expected: bool) -> None:  # noqa: FBT001 - a table
    server = _server(_Answers(200, {"items": nodes}))
    assert readiness.has_ready_nodes(server, len(nodes)) is expected


def test_existing_object_counts_as_created() -> None:
    assert readiness.create(_server(_Answers(409, {})), "/path", {})
    assert not readiness.create(_server(_Answers(403, {})), "/path", {})


def test_waiting_ends_at_the_deadline() -> None:
    assert not readiness.wait_until(lambda: False, time.monotonic() + 0.1, lambda: None)


def test_a_server_that_does_not_answer_is_waited_for() -> None:
    attempts = iter([ConnectionRefusedError(), None])

    def condition() -> bool:
        if error := next(attempts):
            raise error
        return True

    assert readiness.wait_until(condition, time.monotonic() + 60, lambda: None)


def test_a_check_that_fails_ends_the_waiting() -> None:
    def check() -> None:
        raise RuntimeError("a component has ended")

    with pytest.raises(RuntimeError, match="has ended"):
        readiness.wait_until(lambda: False, time.monotonic() + 60, check)


def test_the_probe_pod_is_created_once_and_removed_with_its_events() -> None:
    answers = _Answers(201, {"status": {"phase": "Running"}})
    probe = readiness.ProbePod(_server(answers))
    assert not probe.is_running()
    assert probe.is_running()
    probe.remove()
    methods = [method for method, _ in answers.requests]
    assert methods == ["POST", "GET", "DELETE", "DELETE"]
