"""The spans of a reconcile, from a record, as the SDK hands them to an exporter."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.proxy import Exchange, RequestOrigin
from rolecall.runner.proxy.forward import TraceContext
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.record.spans import FinishedReconcile, PresetIds, SpanWriter, changed_nothing, start_attributes
from rolecall.runner.runs.events import RunEvent, RunSummary

DEMO = GVK("demo.example.com", "v1", "Demo")
OBJ = {"metadata": {"namespace": "ns", "name": "one", "uid": "uid-of-one"}}
START = datetime(2026, 1, 10, 12, tzinfo=UTC).timestamp()
PODS = "/api/v1/namespaces/ns/pods"
SUCCEEDED = Ending("succeeded", RunSummary("successful"))
FAILED = Ending("failed", RunSummary("failed"))


@dataclass
class Sdk:
    """What spans are made with, and what comes of it."""

    ids: PresetIds = field(default_factory=PresetIds)
    seen: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        """Start the SDK."""
        provider = TracerProvider(id_generator=self.ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.seen))
        self.tracer: Tracer = provider.get_tracer("test")

    def write(self, record: RunRecord | None, ending: Ending, mask: Mask | None = None) -> list[ReadableSpan]:
        """Return the spans of a reconcile, the last that ended first."""
        attributes = start_attributes(DEMO, ObjectKey("ns", "one"), "42")
        span = self.tracer.start_span("reconcile Demo", attributes=attributes)
        writer = SpanWriter(self.tracer, self.ids, "https://api:6443", mask or Mask())
        started = int(START * 1e9)
        finished = FinishedReconcile(span, OBJ, record, ending, ("Demo created",), "demo", started, started + 10**10)
        writer.write(finished, started + 10**10)
        return [*reversed(self.seen.get_finished_spans())]


@pytest.fixture
def sdk() -> Sdk:
    return Sdk()


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(DEMO, OBJ, "42", Bodies(), 0)


def request(method: str, target: str, status: int | None = 200, **more: Any) -> Exchange:
    """Return a request half a second after the start."""
    exchange = Exchange(RequestOrigin("task-1", "localhost"), method, target, parse(method, target), START + 0.5, 0.1)
    return replace(exchange, status=status, **more)


def result(name: str = "runner_on_ok", **more: Any) -> RunEvent:
    """Return the result of the task."""
    started = datetime.fromtimestamp(START + 0.25, UTC).isoformat()
    event = RunEvent(
        name, started=started, task="Make it", task_id="task-1", task_path="/r/main.yml:7", duration_seconds=0.5
    )
    return replace(event, **{"action": "kubernetes.core.k8s", "host": "localhost", **more})


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    """Return the only span with a name."""
    (found,) = [span for span in spans if span.name == name]
    return found


def parent_of(span: ReadableSpan) -> int:
    """Return the id of a span's parent."""
    assert span.parent
    return span.parent.span_id


def ident_of(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context
    return int(span.context.span_id)


def test_a_request_is_below_its_task_below_the_run_below_the_reconcile(sdk: Sdk, record: RunRecord) -> None:
    record.on_event(result())
    record.on_exchange(request("GET", f"{PODS}?labelSelector=a"))
    spans = sdk.write(record, SUCCEEDED)
    reconcile, run, task, asked = (named(spans, name) for name in ("reconcile Demo", "run demo", "Make it", "GET pods"))
    assert [parent_of(each) for each in (run, task, asked)] == [ident_of(each) for each in (reconcile, run, task)]
    assert asked.kind is SpanKind.CLIENT
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    assert (task.start_time, task.end_time) == (int((START + 0.25) * 1e9), int((START + 0.75) * 1e9))
    assert dict(asked.attributes or {}) == {
        "server.address": "api",
        "server.port": 6443,
        "http.request.method": "GET",
        "url.path": PODS,
        "rolecall.verb": "list",
        "http.response.status_code": 200,
    }
    assert (task.attributes or {})["code.line.number"] == 7


def test_a_request_of_no_known_task_is_below_the_run(sdk: Sdk, record: RunRecord) -> None:
    record.on_exchange(request("GET", PODS))
    spans = sdk.write(record, SUCCEEDED)
    assert parent_of(named(spans, "GET pods")) == ident_of(named(spans, "run demo"))


def test_a_request_has_the_id_with_which_it_was_sent_on(sdk: Sdk, record: RunRecord) -> None:
    given = TraceContext(given="00-" + "1" * 32 + "-00000000000000aa-01")
    record.on_exchange(request("GET", PODS, context=given))
    assert ident_of(named(sdk.write(record, SUCCEEDED), "GET pods")) == 0xAA


def test_a_request_of_another_trace_is_linked_to_it(sdk: Sdk, record: RunRecord) -> None:
    carried = TraceContext(carried="00-" + "b" * 32 + "-00000000000000cc-01")
    record.on_exchange(request("GET", PODS, context=carried))
    asked = named(sdk.write(record, SUCCEEDED), "GET pods")
    assert [(link.context.trace_id, link.context.span_id) for link in asked.links] == [(int("b" * 32, 16), 0xCC)]
    assert ident_of(asked) != 0xCC


@pytest.mark.parametrize(
    ("method", "target", "status", "error"),
    [
        ("GET", f"{PODS}/a", 404, None),
        ("DELETE", f"{PODS}/a", 404, None),
        ("PATCH", f"{PODS}/a", 404, "404"),
        ("POST", PODS, 409, "409"),
        ("GET", PODS, 500, "500"),
        ("GET", PODS, None, "no_answer"),
        ("GET", f"{PODS}?watch=1", None, None),
    ],
)
def test_an_answer_is_an_error_unless_it_says_that_nothing_is_there(
    sdk: Sdk, method: str, target: str, status: int | None, error: str | None
) -> None:
    record = RunRecord(DEMO, OBJ, "42", Bodies(), 0)
    record.on_exchange(request(method, target, status))
    asked = named(sdk.write(record, SUCCEEDED), f"{method} pods")
    assert (asked.attributes or {}).get("error.type") == error
    assert (asked.status.status_code is StatusCode.ERROR) == (error is not None)


def test_a_failure_is_an_error_of_task_run_and_reconcile_without_its_text(sdk: Sdk, record: RunRecord) -> None:
    record.on_event(result("runner_on_failed", message="the text of the failure"))
    spans = sdk.write(record, FAILED)
    assert {(span.attributes or {})["error.type"] for span in spans} == {"failed"}
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}
    assert not [span for span in spans if "the text" in span.to_json()]


def test_the_task_at_which_a_run_was_ended_lasts_until_then(sdk: Sdk, record: RunRecord) -> None:
    created = datetime.fromtimestamp(START + 0.25, UTC).isoformat()
    record.on_event(RunEvent("playbook_on_task_start", created=created, task="Hang", task_id="task-1"))
    record.on_exchange(request("GET", PODS))
    spans = sdk.write(record, Ending("failed", RunSummary.of_failure("too long", "timeout")))
    task = named(spans, "Hang")
    assert parent_of(named(spans, "GET pods")) == ident_of(task)
    assert task.end_time == named(spans, "run demo").end_time
    assert (named(spans, "run demo").attributes or {})["error.type"] == "timeout"


def test_secret_values_are_masked_wherever_they_occur(sdk: Sdk, record: RunRecord) -> None:
    mask = Mask()
    mask.add("Pa55word")
    record.on_event(result(full_name="Use Pa55word", host="host-Pa55word"))
    record.on_exchange(request("GET", f"{PODS}/Pa55word?token=Pa55word"))
    spans = sdk.write(record, SUCCEEDED, mask)
    assert len(spans) == 4
    assert not [span.to_json() for span in spans if "Pa55word" in span.to_json()]


def test_a_reconcile_without_a_run_is_one_span(sdk: Sdk) -> None:
    (span,) = sdk.write(None, Ending("succeeded"))
    assert (span.attributes or {})["rolecall.causes"] == ("Demo created",)


@pytest.fixture
def unchanged(record: RunRecord) -> RunRecord:
    record.on_event(result())
    record.on_exchange(request("GET", PODS))
    record.on_exchange(request("POST", f"{PODS}?dryRun=All"))
    return record


def test_reads_and_dry_runs_change_nothing(unchanged: RunRecord) -> None:
    assert changed_nothing(unchanged, SUCCEEDED)
    assert changed_nothing(None, SUCCEEDED)


def test_a_failure_is_never_nothing(unchanged: RunRecord) -> None:
    assert not changed_nothing(unchanged, FAILED)
    assert not changed_nothing(None, FAILED)


def test_a_write_a_changed_task_or_a_finalizer_is_something(unchanged: RunRecord) -> None:
    unchanged.is_finalizing = True
    assert not changed_nothing(unchanged, SUCCEEDED)
    unchanged.is_finalizing = False
    unchanged.on_event(result(changed=True))
    assert not changed_nothing(unchanged, SUCCEEDED)
    unchanged.tasks.clear()
    unchanged.on_exchange(request("PATCH", f"{PODS}/a"))
    assert not changed_nothing(unchanged, SUCCEEDED)
