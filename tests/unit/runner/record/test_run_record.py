"""The last runs in memory: records within a budget, and lines about each run."""

from dataclasses import replace

from rolecall.kube.references import ObjectKey
from rolecall.runner.record.document import document_of
from rolecall.runner.record.history import MAX_LINES, RunHistory
from rolecall.runner.record.run_record import Bodies, RecordMemory, RunRecord
from rolecall.runner.runs.events import HIDDEN
from rolecall.runner.runs.outcome import Outcome, TaskFailure
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import CONFIG_MAPS, TASK, config_map, exchange, make_record

LONG = config_map("".join(f"{number:x}" for number in range(5000)))
ONE = ObjectKey("ns", "one")


def long_record(bodies: Bodies) -> RunRecord:
    return make_record(exchange("GET", CONFIG_MAPS, None, LONG), bodies=bodies)


def add(target: RecordMemory | RunHistory, *idents: str, name: str = "one") -> None:
    """Add records with these idents for one object."""
    for ident in idents:
        record = make_record(name=name, bodies=target.bodies if isinstance(target, RecordMemory) else None)
        record.ident = ident
        target.add(record)


def kept(memory: RecordMemory, name: str = "one") -> list[str]:
    return [record.ident for record in memory.runs(DEMO, ObjectKey("ns", name))]


def lines(history: RunHistory, name: str = "one") -> list[str]:
    return [line.id for line in history.of(DEMO, ObjectKey("ns", name))]


def test_last_record_of_an_object_replaces_the_previous_one_until_it_is_forgotten() -> None:
    memory = RecordMemory(1 << 20)
    first, second = (long_record(memory.bodies) for _ in range(2))
    memory.add(first)
    stored = memory.bodies.stored_bytes
    memory.add(second)
    assert memory.runs(DEMO, ONE)[-1] is second
    assert memory.bodies.stored_bytes == stored
    memory.forget(DEMO, ONE)
    assert (memory.runs(DEMO, ONE), memory.bodies.stored_bytes) == ((), 0)


def test_earlier_records_are_dropped_first_then_the_oldest() -> None:
    memory = RecordMemory(8000, max_runs=9)
    add(memory, "0", name="a")
    add(memory, "1", "2", "3", "4", name="b")
    assert (kept(memory, "a"), kept(memory, "b")) == (["0"], ["3", "4"])
    add(memory, "5", name="c")
    add(memory, "6", name="d")
    assert [kept(memory, name) for name in "abcd"] == [[], ["4"], ["5"], ["6"]]


def test_record_larger_than_the_budget_is_not_kept_and_leaves_nothing() -> None:
    memory = RecordMemory(1000)
    memory.add(long_record(memory.bodies))
    assert (memory.runs(DEMO, ONE), memory.bodies.stored_bytes) == ((), 0)


def test_several_records_of_an_object_are_kept_for_the_dashboard() -> None:
    memory = RecordMemory(1 << 20, max_runs=2)
    add(memory, "0", "1", "2")
    assert kept(memory) == ["1", "2"]


def test_equal_bodies_are_stored_once_and_compressed() -> None:
    bodies = Bodies()
    text = b"the same list again " * 1000
    assert bodies.add(text) is bodies.add(text)
    assert bodies.stored_bytes < len(text) / 10
    bodies.drop(body := bodies.add(text))
    assert (bodies.add(text), body.content) == (body, text)


def test_run_without_room_is_recorded_without_further_bodies() -> None:
    record = make_record(*[exchange("GET", f"{CONFIG_MAPS}/{number}", None, LONG) for number in range(3)], room=1000)
    assert [each.response for each in record.exchanges] == [None, None, None]
    assert not record.is_complete


def test_snapshot_stays_whole_when_its_record_is_dropped() -> None:
    memory = RecordMemory(1 << 20)
    record = long_record(memory.bodies)
    memory.add(record)
    snapshot, before = replace(record), document_of(record).text
    memory.forget(DEMO, ONE)
    assert memory.bodies.stored_bytes == 0
    assert document_of(snapshot).text == before


def test_line_reports_start_duration_causes_and_outcome() -> None:
    history = RunHistory()
    record = make_record()
    history.add(record)
    line = history.last(DEMO, ONE)
    assert line is not None
    assert (line.started, line.seconds, line.outcome) == (record.started.timestamp(), 0.25, "succeeded")
    assert (line.because, line.tasks, line.requests) == (("something changed",), 1, 0)


def test_lines_of_an_object_are_bounded_and_the_newest_come_first_until_it_is_forgotten() -> None:
    history = RunHistory()
    add(history, *map(str, range(MAX_LINES + 2)))
    assert history.has_succeeded(DEMO, ONE)
    assert lines(history) == [str(number) for number in reversed(range(2, MAX_LINES + 2))]
    history.forget(DEMO, ONE)
    assert (history.last(DEMO, ONE), lines(history)) == (None, [])
    assert not history.has_succeeded(DEMO, ONE)


def test_line_of_a_retry_has_the_causes_of_the_first_failed_run() -> None:
    history = RunHistory()
    for causes in (("created", "retry 9"), ("retry 1",), ("retry 2",), ("spec.size", "retry 3"), ("retry 4",)):
        record = make_record()
        record.causes = causes
        history.add(record)
    found = [line.first_because for line in history.of(DEMO, ONE)]
    assert found == [("spec.size",), (), ("created",), ("created",), ()]


def test_last_line_of_an_object_stays_regardless_of_others() -> None:
    history = RunHistory(max_earlier=3)
    add(history, "a", name="quiet")
    add(history, *"bcdefgh", name="busy")
    assert (lines(history, "quiet"), lines(history, "busy")) == (["a"], ["h", "g", "f", "e"])


def test_hidden_failure_names_the_rejected_request_of_its_task() -> None:
    denied = exchange("POST", "/api/v1/namespaces/ns/secrets", {"data": "s3cret"}, {"message": "s3cret"}, status=403)
    scaled = exchange("PATCH", "/apis/apps/v1/namespaces/ns/deployments/s3cret/scale", status=422)
    found = exchange("GET", "/api/v1/namespaces/ns/secrets/s3cret", status=200)
    expected = [
        ([denied], "; the API server rejected its last request with 403: create secrets"),
        ([denied, scaled], "; the API server rejected its last request with 422: patch deployments.apps/scale"),
        ([denied, found], ""),
        ([], ""),
    ]
    for exchanges, text in expected:
        record = make_record(*exchanges)
        failures = [TaskFailure("Read", "", HIDDEN, TASK.task), TaskFailure("Other", "", HIDDEN, "t9")]
        failures.append(TaskFailure("Shown", "", "no", TASK.task))
        summary = record.explain_hidden(Outcome("failed", failures=tuple(failures)))
        assert [failure.message for failure in summary.failures] == [HIDDEN + text, HIDDEN, "no"]
