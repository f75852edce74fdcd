"""Runs for tests: their exchanges, the records that they become, and comparisons of both."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.proxy.sessions import Exchange, RequestOrigin
from rolecall.runner.record.document import document_of
from rolecall.runner.record.files import RecordFiles
from rolecall.runner.record.reader import StoredRecord, read_record
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from rolecall.workbench.replay.comparison import Change, Compared, compare
from rolecall.workbench.replay.writes import RunLines, writes_of
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import exchange

MAPS = "/api/v1/namespaces/ns/configmaps"
SECRETS = "/api/v1/namespaces/ns/secrets"
PODS = "/api/v1/namespaces/ns/pods"
VERBS = frozenset({"get", "list", "watch"})
STARTED = 1_800_000_000.0
"""The time of the requests of a recorded run; its objects are older than ``NEWER``."""

OLDER, NEWER = "2027-01-15T07:00:00Z", "2027-01-15T08:00:05Z"
GONE = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
DONE = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
KINDS = {"configmaps": "ConfigMap", "secrets": "Secret", "pods": "Pod", "namespaces": "Namespace"}
RESOURCES = (
    ApiResource(DEMO, "demos", namespaced=True, verbs=VERBS, subresources=frozenset({"status"})),
    *(
        ApiResource(GVK("", "v1", kind), plural, plural != "namespaces", VERBS, frozenset())
        for plural, kind in KINDS.items()
    ),
)


def resource(plural: str) -> ApiResource:
    """Return a resource of the recorded cluster."""
    return next(each for each in RESOURCES if each.plural == plural)


def config_map(value: str, name: str = "a", **metadata: object) -> RawObject:
    """Return a ConfigMap as the API server returns it."""
    whole = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "creationTimestamp": OLDER, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": whole, "data": {"a": value}}


def listed(*items: RawObject, kind: str = "ConfigMap") -> RawObject:
    """Return a list as the API server returns it: its items have no kind."""
    bare = [{name: value for name, value in item.items() if name not in ("apiVersion", "kind")} for item in items]
    return {"apiVersion": "v1", "kind": f"{kind}List", "metadata": {"resourceVersion": "9"}, "items": bare}


def by(task: str, request: Exchange) -> Exchange:
    """Return an exchange of a task, which may name its host: ``task@host``."""
    ident, _, host = task.partition("@")
    return replace(request, origin=RequestOrigin(ident, host or "localhost"))


def ask(method: str, target: str, body: object = None, answer: object = None, status: int = 200) -> Exchange:
    """Return an exchange of the task "one"."""
    found = exchange(method, target, body, None if isinstance(answer, bytes) else answer, status)
    response = answer if isinstance(answer, bytes) else found.response
    return replace(found, origin=RequestOrigin("one", "localhost"), response=response)


def run_of(
    *exchanges: Exchange,
    failures: tuple[TaskFailure, ...] = (),
    status: RawObject | None = None,
    hidden: tuple[str, ...] = (),
) -> RunRecord:
    """Return a run with the tasks of the exchanges; the name of each task is its ident."""
    metadata = {"name": "one", "namespace": "ns", "uid": "uid-of-one", "creationTimestamp": OLDER}
    obj = {"apiVersion": DEMO.api_version, "kind": DEMO.kind, "metadata": metadata, "spec": {}}
    started = datetime.fromtimestamp(STARTED, UTC)
    record = RunRecord(DEMO, obj, "7", Bodies(), 1 << 20, ("something changed",), started=started)
    for ident, host in dict.fromkeys((each.origin.task, each.origin.host) for each in exchanges):
        record.on_event(RunEvent(name="playbook_on_task_start", task=ident, task_id=ident, task_path=f"/r/{ident}:1"))
        censored = ident in hidden
        record.on_event(RunEvent(name="runner_on_ok", task=ident, task_id=ident, host=host, censored=censored))
    for each in exchanges:
        record.on_exchange(each)
    summary = Outcome("failed" if failures else "successful", failures=failures, duration_seconds=0.25)
    record.ending = Ending("failed" if failures else "succeeded", summary, status)
    return record


def record_of(tmp_path: Path, *exchanges: Exchange, hidden: tuple[str, ...] = ()) -> StoredRecord:
    """Return the record of a run with these exchanges."""
    return stored(tmp_path, run_of(*exchanges, hidden=hidden))


def stored(tmp_path: Path, run: RunRecord) -> StoredRecord:
    """Return the record of a run, read from its file."""
    document = document_of(run, resources=RESOURCES)
    return read_record(RecordFiles(tmp_path, 1 << 20).write(run, document))


LATER = "2027-03-01T10:00:00"
EARLIER = "2027-01-15T08:00:00"


def body(value: object, name: str = "a") -> RawObject:
    """Return a ConfigMap as a task sends it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}}


def post(value: object, name: str = "a", task: str = "one", uid: str = "") -> Exchange:
    """Return the creation of a ConfigMap."""
    response = config_map(str(value), name, uid=uid or f"uid-of-{name}")
    return by(task, ask("POST", MAPS, body(value, name), response, 201))


def compared(tmp_path: Path, before: list[Exchange], after: list[Exchange], hidden: tuple[str, ...] = ()) -> Compared:
    """Compare a record that started at ``EARLIER`` with a run that started at ``LATER``."""
    record = replace(RunLines.of_record(record_of(tmp_path, *before, hidden=hidden)), started=time_of(EARLIER))
    run = replace(RunLines.of_run(run_of(*after)), started=time_of(LATER))
    return compare(writes_of(record), writes_of(run), has_ended_early=False)


def changes(found: Compared) -> list[tuple[Change, str]]:
    """Return the changed writes, each with its task."""
    return [(each.change, each.task.name) for each in found.differences]


def time_of(text: str) -> datetime:
    """Return a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
