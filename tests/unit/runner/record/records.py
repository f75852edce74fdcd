"""Records for tests, and what they are made of."""

import json
from pathlib import Path

from rolecall.kube.references import RawObject
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.proxy.sessions import Exchange, RequestOrigin
from rolecall.runner.record.document import document_of
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome
from tests.unit.runner.proxy.conftest import DEMO

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
TASK = RequestOrigin("task-1", "localhost")


def primary(name: str = "one") -> RawObject:
    """Return an object that runs are for."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}"}
    return {"apiVersion": DEMO.api_version, "kind": DEMO.kind, "metadata": metadata}


def config_map(value: str, **metadata: object) -> RawObject:
    """Return a ConfigMap as the API server returns it."""
    return {"kind": "ConfigMap", "metadata": {"name": "a", **metadata}, "data": {"a": value}}


def exchange(method: str, target: str, body: object = None, answer: object = None, status: int = 200) -> Exchange:
    """Return an exchange of the task."""
    return Exchange(
        origin=TASK,
        method=method,
        target=target,
        info=parse(method, target),
        started=1_800_000_000.0,
        duration_seconds=0.003,
        content_type="application/json" if body else "",
        body=json.dumps(body).encode() if body else b"",
        status=status,
        response_type="application/json",
        response=json.dumps(answer).encode(),
    )


def make_record(
    *exchanges: Exchange, name: str = "one", bodies: Bodies | None = None, room: int = 1 << 20
) -> RunRecord:
    """Return the record of a run with one task."""
    record = RunRecord(DEMO, primary(name), "7", bodies or Bodies(), room, ("something changed",))
    record.on_event(RunEvent(name="playbook_on_task_start", task="Write", task_id="task-1", task_path="/r/main.yml:3"))
    for each in exchanges:
        record.on_exchange(each)
    record.on_event(RunEvent(name="runner_on_ok", task="Write", task_id="task-1", host="localhost", changed=True))
    record.ending = Ending("succeeded", Outcome("successful", duration_seconds=0.25))
    return record


def write_record(path: Path, *exchanges: Exchange) -> Path:
    """Write a record into a file."""
    path.write_text(document_of(make_record(*exchanges)).text)
    return path
