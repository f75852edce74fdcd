"""The spans of a reconcile, from its record, as the SDK passes them to an exporter."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy.forward import TraceContext
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.proxy.sessions import Exchange, RequestOrigin
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.record.spans import PresetIds, Trace, Tracer
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.secrets.mask import Mask
from rolecall.system.clock import SYSTEM_CLOCK, Clock
from tests.unit.manual_clock import ManualClock
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.runner.record.records import primary

START = datetime(2026, 1, 10, 12, tzinfo=UTC).timestamp()
PODS = "/api/v1/namespaces/ns/pods"
SUCCEEDED = Ending("succeeded", Outcome("successful"))
FAILED = Ending("failed", Outcome("failed"))


@dataclass(frozen=True)
class Secrets:
    """The part of a recorder that a tracer uses."""

    mask: Mask | Exception
    clock: Clock = SYSTEM_CLOCK

    async def mask_of(self, _watch: Watch, _record: RunRecord) -> Mask:
        """Return the mask, or raise the error."""
        if isinstance(self.mask, Exception):
            raise self.mask
        return self.mask


@dataclass(frozen=True)
class Traced:
    """A reconcile with a trace."""

    trace: Trace
    record: RunRecord
    seen: InMemorySpanExporter

    async def finish(self, ending: Ending = SUCCEEDED, *, has_run: bool = True) -> list[ReadableSpan]:
        """End the reconcile and return its spans, the last one to end first."""
        self.trace.run_ended()
        await self.trace.finish(primary(), self.record if has_run else None, ending)
        return [*reversed(self.seen.get_finished_spans())]


def traced(
    sampler: Sampler = ALWAYS_ON,
    mask: Mask | Exception | None = None,
    clock: Clock = SYSTEM_CLOCK,
    *,
    propagates: bool = True,
    **settings: Any,
) -> Traced:
    """Start the trace of a reconcile and its run."""
    ids, seen = PresetIds(), InMemorySpanExporter()
    provider = TracerProvider(sampler, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(seen))
    recorder = cast("Recorder", Secrets(mask or Mask(), clock))
    tracer = Tracer(provider.get_tracer("test"), ids, propagates, recorder, "https://api:6443", **settings)
    record = RunRecord(DEMO, primary(), "42", Bodies(), 0)
    watch = Watch(DEMO, RoleContent(Path("/roles/demo")))
    trace = tracer.start(watch, ObjectKey("ns", "one"), "42", (Cause("Demo created"),))
    trace.run_started(record)
    return Traced(trace, record, seen)


@pytest.fixture
def run() -> Traced:
    return traced()


def request(method: str, target: str, status: int | None = 200, **more: Any) -> Exchange:
    """Return a request half a second after the start."""
    origin = RequestOrigin("task-1", "localhost")
    exchange = Exchange(origin, method, target, parse(method, target), START + 0.5, 0.1)
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


async def test_request_span_is_below_task_below_run_below_reconcile(run: Traced) -> None:
    run.record.on_event(result())
    run.record.on_exchange(request("GET", f"{PODS}?labelSelector=a"))
    spans = await run.finish()
    reconcile, play, task, sent = (named(spans, each) for each in ("reconcile Demo", "run demo", "Make it", "GET pods"))
    assert [parent_of(each) for each in (play, task, sent)] == [ident_of(each) for each in (reconcile, play, task)]
    assert sent.kind is SpanKind.CLIENT
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    assert (task.start_time, task.end_time) == (int((START + 0.25) * 1e9), int((START + 0.75) * 1e9))
    assert dict(sent.attributes or {}) == {
        "server.address": "api",
        "server.port": 6443,
        "http.request.method": "GET",
        "url.path": PODS,
        "rolecall.verb": "list",
        "http.response.status_code": 200,
    }
    assert (task.attributes or {})["code.line.number"] == 7


@pytest.mark.parametrize(("version", "rest"), [("00", ""), ("01", "-later" * 200)], ids=["this version", "a later one"])
async def test_request_of_unknown_task_is_below_the_run_and_linked_to_the_trace_it_carried(
    version: str, rest: str, run: Traced
) -> None:
    carried = TraceContext(carried=f"{version}-{'b' * 32}-00000000000000cc-01{rest}")
    run.record.on_exchange(request("GET", PODS, context=carried))
    spans = await run.finish()
    sent = named(spans, "GET pods")
    assert parent_of(sent) == ident_of(named(spans, "run demo"))
    assert [(link.context.trace_id, link.context.span_id) for link in sent.links] == [(int("b" * 32, 16), 0xCC)]
    assert ident_of(sent) != 0xCC


@pytest.mark.parametrize(("sampler", "flags", "count"), [(ALWAYS_ON, "01", 3), (ALWAYS_OFF, "00", 0)])
async def test_request_carries_the_ids_of_its_span_and_the_sampling(sampler: Sampler, flags: str, count: int) -> None:
    run = traced(sampler)
    assert run.record.new_traceparent is not None
    given = run.record.new_traceparent()
    run.record.on_exchange(request("GET", PODS, context=TraceContext(given=given)))
    spans = await run.finish()
    assert len(spans) == count
    assert given.endswith(f"-{flags}")
    for context in [span.context for span in spans if span.name == "GET pods"]:
        assert context
        assert given == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


async def test_without_propagation_requests_have_spans_and_carry_nothing() -> None:
    run = traced(propagates=False)
    assert run.record.new_traceparent is None
    run.record.on_exchange(request("GET", PODS))
    assert len(await run.finish()) == 3


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
async def test_request_has_an_error_unless_a_read_or_delete_found_nothing(
    run: Traced, method: str, target: str, status: int | None, error: str | None
) -> None:
    run.record.on_exchange(request(method, target, status))
    sent = named(await run.finish(), f"{method} pods")
    assert (sent.attributes or {}).get("error.type") == error
    assert (sent.status.status_code is StatusCode.ERROR) == (error is not None)


async def test_failure_is_an_error_of_task_run_and_reconcile_without_its_text(run: Traced) -> None:
    run.record.on_event(result("runner_on_failed", message="the text of the failure"))
    spans = await run.finish(FAILED)
    assert {(span.attributes or {})["error.type"] for span in spans} == {"failed"}
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}
    assert not [span for span in spans if "the text" in span.to_json()]


async def test_unfinished_task_lasts_until_the_run_was_stopped(run: Traced) -> None:
    created = datetime.fromtimestamp(START + 0.25, UTC).isoformat()
    run.record.on_event(RunEvent("playbook_on_task_start", created=created, task="Hang", task_id="task-1"))
    run.record.on_exchange(request("GET", PODS))
    spans = await run.finish(Ending("failed", Outcome.of_failure("too long", "timeout")))
    task = named(spans, "Hang")
    assert parent_of(named(spans, "GET pods")) == ident_of(task)
    assert task.end_time == named(spans, "run demo").end_time
    assert (named(spans, "run demo").attributes or {})["error.type"] == "timeout"


async def test_secret_values_are_masked_wherever_they_occur() -> None:
    mask = Mask()
    mask.add("Pa55word")
    run = traced(mask=mask)
    run.record.on_event(result(full_name="Use Pa55word", host="host-Pa55word"))
    run.record.on_exchange(request("GET", f"{PODS}/Pa55word?token=Pa55word"))
    spans = await run.finish()
    assert len(spans) == 4
    assert not [span.to_json() for span in spans if "Pa55word" in span.to_json()]


async def test_error_loses_the_trace_and_logs_no_secret() -> None:
    with capture_logs() as logs:
        assert await traced(mask=ValueError("Pa55word")).finish() == []
    (line,) = logs
    assert line["event"] == "Failed to export a trace"
    assert "Pa55word" not in str(line)


async def test_reconcile_and_run_have_the_times_of_the_clock() -> None:
    """The SDK would take those of the system, which a simulated operator doesn't have."""
    clock = ManualClock(epoch=START)
    run = traced(clock=clock)
    clock.advance(2)
    spans = [named(await run.finish(), name) for name in ("reconcile Demo", "run demo")]
    started, ended = int(START * 1e9), int((START + 2) * 1e9)
    assert [(span.start_time, span.end_time) for span in spans] == [(started, ended)] * 2


async def test_reconcile_without_a_run_is_one_span(run: Traced) -> None:
    (span,) = await run.finish(Ending("succeeded"), has_run=False)
    assert (span.attributes or {})["rolecall.causes"] == ("Demo created",)


@pytest.mark.parametrize(
    ("more", "is_finalizing", "ending", "is_traced"),
    [
        ([], False, SUCCEEDED, False),
        ([], False, FAILED, True),
        ([], True, SUCCEEDED, True),
        ([result(changed=True)], False, SUCCEEDED, True),
        ([request("PATCH", f"{PODS}/a")], False, SUCCEEDED, True),
    ],
    ids=["reads and dry runs", "a failure", "a finalizer", "a changed task", "a write"],
)
async def test_reconcile_without_changes_is_omitted_if_requested(
    more: list[RunEvent | Exchange], ending: Ending, *, is_finalizing: bool, is_traced: bool
) -> None:
    run = traced(traces_unchanged=False)
    run.record.is_finalizing = is_finalizing
    for each in (result(), request("GET", PODS), request("POST", f"{PODS}?dryRun=All"), *more):
        if isinstance(each, RunEvent):
            run.record.on_event(each)
        else:
            run.record.on_exchange(each)
    assert bool(await run.finish(ending)) == is_traced


@pytest.mark.parametrize(("ending", "count"), [(SUCCEEDED, 0), (FAILED, 1)])
async def test_reconcile_without_a_run_is_omitted_unless_it_failed(ending: Ending, count: int) -> None:
    assert len(await traced(traces_unchanged=False).finish(ending, has_run=False)) == count
