import json

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.serving.servers import run_environment, user_metrics_application


async def post(telemetry: OperatorMetrics, body: str, method: str = "POST") -> tuple[int, str]:
    async with TestClient(TestServer(user_metrics_application(telemetry.user_metrics.apply))) as client:
        response = await client.request(method, "/metrics", data=body)
        return response.status, await response.text()


async def test_a_metric_of_a_role_is_served_with_the_others() -> None:
    telemetry = OperatorMetrics("test")
    body = {"name": "mine", "description": "", "counter": {"increment": True, "add": None}, "gauge": None}
    assert await post(telemetry, json.dumps(body)) == (200, "")
    assert b"\nmine 1.0\n" in telemetry.render()
    assert b"ansible_operator_build_info" in telemetry.render()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{}", "a request should contain at least one metric"),
        ('{"counter": {}, "gauge": {}}', "only one metric can be processed at a time"),
        ('{"name": "a", "counter": {"add": -1}}', "counter metrics cannot decrease in value"),
        ("no json", "Expecting value: line 1 column 1 (char 0)"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
async def test_a_refusal_says_why(body: str, text: str) -> None:
    assert await post(OperatorMetrics("test"), body) == (400, f"{text}\n")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_metrics_are_only_posted(method: str) -> None:
    assert (await post(OperatorMetrics("test"), "{}", method))[0] == 405


def test_runs_are_told_where_to_post() -> None:
    assert run_environment(5050) == {"ROLECALL_METRICS_URL": "http://127.0.0.1:5050/metrics"}
