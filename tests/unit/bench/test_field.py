"""The comparison of existing projects: the outcome of a run, and the report."""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from bench import field
from bench.field import Result, Runner, reconcile, report
from bench.field_projects import Case, Project
from bench.judges.field import read_report
from bench.judges.verdicts import DIRECT, WARM

from rolecall.kube.references import RawObject
from tests.unit.kube.conftest import serving, write_kubeconfig

SHOP: RawObject = {"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "one"}}
PATH = "/apis/shop.example.com/v1"
RUNNING, FAILURE = "Running", "Failure"


def seen(name: str, kind: str = RUNNING, **condition: str) -> RawObject:
    """Return an event of a watch."""
    metadata = {"name": name, "namespace": "field", "resourceVersion": "8"}
    conditions = [{"type": kind, "status": "True", **condition}]
    return {"type": "MODIFIED", "object": {**SHOP, "metadata": metadata, "status": {"conditions": conditions}}}


@pytest.fixture
def operator() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


async def outcome_of(
    operator: "subprocess.Popen[bytes]", directory: Path, *events: RawObject, timeout_seconds: float = 60
) -> Result:
    """Reconcile a Shop whose watch has these events, and nothing after them until its timeout."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == PATH:
            kinds = [{"name": "shops", "kind": "Shop", "namespaced": True, "verbs": ["create", "watch"]}]
            return web.json_response({"resources": kinds})
        if request.method == "POST":
            obj = await request.json()
            assert obj["metadata"] == {"name": "one", "namespace": "field"}
            return web.json_response({**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}})
        assert (request.path, request.query["resourceVersion"]) == (f"{PATH}/namespaces/field/shops", "7")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"".join(json.dumps(each).encode() + b"\n" for each in events))
        await asyncio.sleep(float(request.query["timeoutSeconds"]))
        return response

    async with serving(handle) as url:
        return await reconcile(SHOP, operator, Path(write_kubeconfig(directory, url, {})), timeout_seconds)


async def test_first_outcome_of_the_created_object_counts(operator: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    events = [seen("one", reason="Running"), seen("other", reason="Successful")]
    events += [seen("one", FAILURE, message="no\n| more"), seen("one", reason="Successful")]
    result = await outcome_of(operator, tmp_path, *events)
    assert result.outcome == "Failed: no \\| more"
    assert result.memory_mib > 0
    assert 0 < result.seconds < 60
    assert SHOP["metadata"] == {"name": "one"}


async def test_outcome_of_a_run_without_conditions_is_its_timeout(
    operator: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    result = await outcome_of(operator, tmp_path, seen("one", reason="Running"), timeout_seconds=1)
    assert result.outcome == "no outcome within 1 s"


async def test_exit_of_the_runner_is_the_outcome(operator: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    running = asyncio.create_task(outcome_of(operator, tmp_path, seen("one", reason="Running")))
    await asyncio.sleep(0.1)
    operator.kill()
    assert (await running).outcome == "the runner exited with -9"


def test_report_has_medians_and_ratios_and_is_read_by_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 4.0, 3.0, 6.0])

    def run(project: Project, runner: Runner, options: argparse.Namespace) -> Result:
        objects = {"ConfigMap field/one": {"data": {"name": runner.name}}, "ConfigMap field/two": project.sample}
        return Result("Successful", next(seconds), 2.0, float(options.rounds), objects)

    monkeypatch.setattr(field, "_run", run)
    runners = [Runner(name, Path(name), Path()) for name in ("rolecall", "peer")]
    project = Project(Case(Path("shops"), Path("one.yaml")), SHOP, [], (), {})
    text = report([project], runners, argparse.Namespace(rounds=2))
    assert text == (
        "| project | outcome, rolecall | outcome, peer | seconds, rolecall | seconds, peer | ratio "
        "| CPU seconds, rolecall | CPU seconds, peer | ratio "
        "| peak MiB, rolecall | peak MiB, peer | ratio | objects |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| shops | Successful | Successful | 2 | 5 | 2.5 | 2 | 2 | 1 | 2 | 2 | 1 | 1 equal, 1 differences |\n"
        "\nshops:\n\n"
        '- ConfigMap field/one.data.name: "rolecall" instead of the peer\'s "peer"\n'
    )
    found = read_report(text).outcomes["shops"]
    assert (found[WARM].passed, found[DIRECT].passed) == (False, True)
