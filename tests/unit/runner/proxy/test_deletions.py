from typing import Any

import pytest
from aiohttp import web

from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run

PATH = "/api/v1/namespaces/ns/configmaps/cm"
LATER = {"deletionTimestamp": "2026-01-01T12:00:00Z"}


def obj(**metadata: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"uid": "u", "resourceVersion": "7", **metadata}}


@pytest.mark.parametrize(
    ("answer", "status", "removed"),
    [
        ({"kind": "Status", "status": "Success", "details": {"uid": "u"}}, 200, ["u"]),
        (obj(), 200, ["u"]),
        (obj(**LATER, deletionGracePeriodSeconds=0), 200, ["u"]),
        (obj(**LATER, deletionGracePeriodSeconds=30), 200, []),
        (obj(**LATER, deletionGracePeriodSeconds=0, finalizers=["a.b/c"]), 200, []),
        (obj(**LATER, deletionGracePeriodSeconds=0), 202, []),
        ({"kind": "Status", "status": "Failure", "details": {"uid": "u"}}, 404, []),
        ({"kind": "Status", "status": "Failure", "details": {"uid": "u"}}, 409, []),
        ({"kind": "Status", "status": "Success"}, 200, []),
        (["odd"], 200, []),
    ],
)
async def test_only_what_is_gone_when_the_delete_is_answered_is_noted(
    run: Run, api_server: ApiServer, answer: Any, status: int, removed: list[str]
) -> None:
    async def answer_it(_request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    api_server.answers["DELETE", PATH] = answer_it
    async with run.session.delete(PATH) as found:
        assert found.status == status
    assert run.removed == removed


async def test_a_dry_run_removes_nothing(run: Run) -> None:
    async with run.session.delete(f"{PATH}?dryRun=All") as found:
        assert found.status == 200
    assert run.removed == []
