from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import Tracer as SdkTracer
from structlog.testing import capture_logs

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy import Exchange, RequestOrigin
from rolecall.runner.proxy.forward import TraceContext
from rolecall.runner.proxy.request_info import parse
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.record.spans import Exporting, PresetIds, Trace, Tracer
from rolecall.runner.runs.events import RunSummary

DEMO = GVK("demo.example.com", "v1", "Demo")
WATCH = Watch(DEMO, RoleContent(Path("/roles/demo")))
OBJ = {"metadata": {"namespace": "ns", "name": "one", "uid": "uid-of-one"}}
SUCCEEDED = Ending("succeeded", RunSummary("successful"))


@dataclass(frozen=True)
class Sends:
    """As much of ``Exporting`` as a tracer needs."""

    tracer: SdkTracer
    ids: PresetIds
    propagates: bool = True


@dataclass(frozen=True)
class Secrets:
    """As much of a recorder as a tracer needs, which may fail."""

    error: Exception | None = None

    async def mask_of(self, _watch: Watch, _record: RunRecord) -> Mask:
        """Return an empty mask."""
        if self.error:
            raise self.error
        return Mask()


@dataclass(frozen=True)
class Scene:
    """A reconcile that is followed, and what is sent of it."""

    trace: Trace
    record: RunRecord
    seen: InMemorySpanExporter

    async def run(self) -> str:
        """Let a run send one request, end it, and return the ``traceparent`` of the request."""
        self.trace.run_started(self.record)
        given = self.record.new_traceparent() if self.record.new_traceparent else ""
        path = "/api/v1/pods"
        asked = Exchange(RequestOrigin(), "GET", path, parse("GET", path), 1.0, 0.1, context=TraceContext(given=given))
        self.record.on_exchange(asked)
        self.trace.run_ended()
        await self.trace.finish(OBJ, self.record, SUCCEEDED)
        return given


def scene(sampler: Sampler = ALWAYS_ON, *, error: Exception | None = None, **settings: Any) -> Scene:
    """Start to follow a reconcile."""
    ids, seen = PresetIds(), InMemorySpanExporter()
    provider = TracerProvider(sampler, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(seen))
    sends = Sends(provider.get_tracer("test"), ids, settings.pop("propagates", True))
    tracer = Tracer(cast("Exporting", sends), cast("Recorder", Secrets(error)), "https://api:6443", **settings)
    record = RunRecord(DEMO, OBJ, "42", Bodies(), 0)
    return Scene(tracer.start(WATCH, ObjectKey("ns", "one"), "42", ()), record, seen)


async def test_a_request_is_sent_on_with_the_ids_of_its_span() -> None:
    traced = scene()
    given = await traced.run()
    (asked,) = [span for span in traced.seen.get_finished_spans() if span.name == "GET pods"]
    assert asked.context
    assert given == f"00-{asked.context.trace_id:032x}-{asked.context.span_id:016x}-01"


async def test_what_is_not_sampled_says_so_and_has_no_spans() -> None:
    traced = scene(ALWAYS_OFF)
    assert (await traced.run()).endswith("-00")
    assert traced.seen.get_finished_spans() == ()


@pytest.mark.parametrize(("traces_unchanged", "spans"), [(True, 3), (False, 0)])
async def test_a_reconcile_that_did_nothing_is_left_out_if_asked(*, traces_unchanged: bool, spans: int) -> None:
    traced = scene(traces_unchanged=traces_unchanged)
    await traced.run()
    assert len(traced.seen.get_finished_spans()) == spans


async def test_without_propagation_requests_are_traced_and_carry_nothing() -> None:
    traced = scene(propagates=False)
    assert await traced.run() == ""
    assert len(traced.seen.get_finished_spans()) == 3


async def test_a_fault_costs_the_trace_and_tells_no_secret() -> None:
    traced = scene(error=ValueError("Pa55word"))
    with capture_logs() as logs:
        await traced.run()
    assert traced.seen.get_finished_spans() == ()
    (line,) = logs
    assert line["event"] == "A trace is lost"
    assert "Pa55word" not in str(line)
