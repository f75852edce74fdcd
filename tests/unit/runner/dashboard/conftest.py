import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rolecall.kube.errors import KubeError, UnreachableError
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.dashboard.server import Guard, dashboard_application
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Ending, RecordMemory, RunRecord
from rolecall.runner.runs.outcome import Outcome
from tests.support.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.record.records import make_record
from tests.unit.runner.test_watch_controller import Bench

OPEN = Guard(None, is_on_loopback=True)


@dataclass(slots=True)
class Shown:
    """An operator that stands still, and its page."""

    bench: Bench
    sources: Sources
    recorder: Recorder

    @property
    def kind(self) -> Kind:
        """The watched kind."""
        return self.sources.kinds[0]

    def add_run(
        self,
        obj: RawObject,
        *exchanges: Exchange,
        ident: str = "7",
        ending: Ending | None = None,
        message: str = "",
        **fields: Any,
    ) -> RunRecord:
        """Record a run for an object; ``fields`` are others of the record."""
        record = make_record(*exchanges, bodies=self.recorder.memory.bodies)
        record.gvk, record.obj, record.ident = self.kind.gvk, obj, ident
        record.ending = ending or Ending("succeeded", Outcome("successful", duration_seconds=0.25), obj.get("status"))
        for name, value in fields.items():
            setattr(record, name, value)
        self.recorder.history.add(record, message)
        self.recorder.memory.add(record)
        return record

    async def get(self, path: str, guard: Guard = OPEN, **headers: str) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        async with TestClient(TestServer(dashboard_application(self.sources, guard))) as client:
            response = await client.get(path, headers=headers)
            return response.status, await response.text()

    async def json(self, path: str) -> Any:
        """Return the JSON of a page."""
        status, text = await self.get(path, Accept="application/json")
        assert status == 200, text
        return json.loads(text)


async def _unknown(*_: object) -> None:
    raise KubeError("a cluster of a test serves no discovery")


async def _unreachable(*_: object) -> None:
    raise UnreachableError("a cluster of a test has no server")


def shown_operator(cluster: FakeCluster, root: Path, monkeypatch: pytest.MonkeyPatch, gvk: GVK = THING) -> Shown:
    """Return an operator for a kind."""
    monkeypatch.setattr(cluster, "resource_for_path", _unknown)
    monkeypatch.setattr(cluster, "receive_up_to", _unreachable)
    bench = Bench(cluster, root, gvk=gvk)
    recorder = Recorder(cluster, RecordMemory(1 << 20, max_runs=3), has_dashboard=True)
    sources = Sources("1.2.3", (Kind(bench.controller),), bench.manager, recorder)
    return Shown(bench, sources, recorder)


@pytest.fixture
def shown(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    return shown_operator(cluster, tmp_path, monkeypatch)
