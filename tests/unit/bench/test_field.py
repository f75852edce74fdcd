"""The comparison of existing projects: the outcome of a run, and the report."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from bench import field
from bench.contenders import PEER, WARM, Contender
from bench.field import Runs, parser, reconcile, report, run_projects
from bench.field_projects import Project
from bench.operator_process import Operator, running

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
def operator(tmp_path: Path) -> Iterator[Operator]:
    with running([sys.executable, "-c", "import signal; signal.pause()"], tmp_path, os.environ) as operator:
        yield operator


async def outcome_of(
    operator: Operator,
    directory: Path,
    *events: RawObject,
    timeout_seconds: float = 60,
    on_watch: Callable[[], object] = lambda: None,
) -> tuple[str, float, float, float]:
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
        on_watch()
        await asyncio.sleep(float(request.query["timeoutSeconds"]))
        return response

    async with serving(handle) as url:
        return await reconcile(SHOP, operator, Path(write_kubeconfig(directory, url, {})), timeout_seconds)


async def test_first_outcome_of_the_created_object_counts(operator: Operator, tmp_path: Path) -> None:
    events = [seen("one", reason="Running"), seen("other", reason="Successful")]
    events += [seen("one", FAILURE, message="no"), seen("one", reason="Successful")]
    outcome, seconds, _, memory_mib = await outcome_of(operator, tmp_path, *events)
    assert outcome == "Failed: no"
    assert memory_mib > 0
    assert 0 < seconds < 60
    assert SHOP["metadata"] == {"name": "one"}


async def test_outcome_of_a_run_without_conditions_is_its_timeout(operator: Operator, tmp_path: Path) -> None:
    outcome, *_ = await outcome_of(operator, tmp_path, seen("one", reason="Running"), timeout_seconds=1)
    assert outcome == "no outcome within 1 s"


async def test_exit_of_the_runner_is_the_outcome(operator: Operator, tmp_path: Path) -> None:
    outcome, *_ = await outcome_of(operator, tmp_path, seen("one", reason="Running"), on_watch=operator.process.kill)
    assert outcome == "the runner exited with -9"


def test_report_has_medians_ratios_outcomes_and_differences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seconds = iter([1.0, 4.0, 3.0, 6.0])

    async def run(project: Project, runner: Contender, options: argparse.Namespace, runs: Runs) -> None:
        runs.objects[runner.name] = {"ConfigMap field/one": {"data.name": runner.name}, "ConfigMap field/two": {}}
        runs.outcomes[runner.name] = "Successful" if runner.name == PEER else "Failed: no\n   more"
        runs.seconds.add(runner.name, next(seconds))
        runs.cpu_seconds.add(runner.name, 2.0)
        runs.memory_mib.add(runner.name, float(options.rounds + len(project.manifests)))

    monkeypatch.setattr(field, "_run", run)
    (tmp_path / "one.yaml").write_text(json.dumps(SHOP))
    (tmp_path / "cases.yaml").write_text(json.dumps([{"project": ".", "object": "one.yaml", "name": "shops"}]))
    options = parser().parse_args([str(tmp_path / "cases.yaml"), "--peer", sys.executable, "--rounds", "2"])
    assert report(run_projects(options)) == (
        "| measure | goal |  | warm | peer | peer / warm | remark |\n"
        "|---|---|---|---|---|---|---|\n"
        "| shops: first outcome (s) |  |  | 2 (1 to 3) | 5 (4 to 6) | 2.5 |  |\n"
        "| … CPU until then, whole tree (CPU s) |  |  | 2 (2 to 2) | 2 (2 to 2) | 1 |  |\n"
        "| … peak memory until then (MiB PSS) |  |  | 2 (2 to 2) | 2 (2 to 2) | 1 |  |\n"
        "\nshops, objects: 1 equal, 1 differences\n\n"
        "- warm: Failed: no more\n"
        "- peer: Successful\n"
        "- ConfigMap field/one.data.name: 'warm' instead of the peer's 'peer'\n"
    )


def test_run_that_is_not_possible_is_reported_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def run(_project: Project, runner: Contender, _options: argparse.Namespace, runs: Runs) -> None:
        if runner.name == WARM:
            raise RuntimeError("no port is free")
        runs.outcomes[runner.name] = "Successful"

    monkeypatch.setattr(field, "_run", run)
    (tmp_path / "one.yaml").write_text(json.dumps(SHOP))
    (tmp_path / "cases.yaml").write_text(json.dumps([{"project": ".", "object": "one.yaml"}]))
    (runs,) = run_projects(parser().parse_args([str(tmp_path / "cases.yaml"), "--peer", sys.executable]))
    assert runs.outcomes == {WARM: "not run: no port is free", PEER: "Successful"}
