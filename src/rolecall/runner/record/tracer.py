"""Follows reconciles: the trace and its sampling are decided at the start, the spans are made at the end.

So every request can be told its trace before anybody knows what the run will do, and a run pays for nothing but that.
"""

import time
import traceback
from dataclasses import dataclass
from functools import partial

from opentelemetry.trace import Span, format_span_id, format_trace_id

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.reconcile_spans import Traced, Writer, changed_nothing, start_attributes
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.runner.record.span_export import Exporting
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("traces")
_SAMPLED = 1
"""The only flag that is sent on: propagators of older libraries refuse a ``traceparent`` with others."""


@dataclass(frozen=True, slots=True)
class Tracer:
    """Follows all reconciles. ``server`` is the URL of the API server."""

    exporting: Exporting
    recorder: Recorder
    server: str
    traces_unchanged: bool = True

    def start(self, watch: Watch, key: ObjectKey, ident: str, causes: tuple[Cause, ...]) -> "Trace":
        """Return what follows a reconcile that starts now."""
        attributes = start_attributes(watch.gvk, key, ident)
        span = self.exporting.tracer.start_span(f"reconcile {watch.gvk.kind}", attributes=attributes)
        return Trace(self, watch, span, tuple(cause.text for cause in causes))


@dataclass(slots=True)
class Trace:
    """Follows one reconcile."""

    tracer: Tracer
    watch: Watch
    span: Span
    causes: tuple[str, ...]
    run_started_ns: int = 0
    run_ended_ns: int = 0

    def run_started(self, record: RunRecord | None) -> None:
        """Let each request of the run carry an id of its own."""
        self.run_started_ns = time.time_ns()
        if record is not None and self.tracer.exporting.propagates:
            record.new_traceparent = self._new_traceparent

    def run_ended(self) -> None:
        """Take note that the run has ended."""
        self.run_ended_ns = time.time_ns()

    async def finish(self, obj: RawObject, record: RunRecord | None, ending: Ending) -> None:
        """Make the spans, unless the reconcile is to be left out; a trace must not fail a reconcile."""
        ended_ns = time.time_ns()
        if not self.span.is_recording():
            return
        if not self.tracer.traces_unchanged and changed_nothing(record, ending):
            return  # a span that does not end is never sent
        try:
            await self._write(obj, record, ending, ended_ns)
        except Exception as error:  # noqa: BLE001 - see above; not its text, in which there may be a secret
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.warning("A trace is lost", error=f"{type(error).__name__} at {place.filename}:{place.lineno}")

    async def _write(self, obj: RawObject, record: RunRecord | None, ending: Ending, ended_ns: int) -> None:
        content, mask = "", None
        if record is not None:
            content = self.watch.content_for(finalizing=record.is_finalizing).path.name
            mask = await self.tracer.recorder.mask_of(self.watch, record)
        traced = Traced(self.span, obj, record, ending, self.causes, content, self.run_started_ns, self.run_ended_ns)
        sends_to = self.tracer.exporting
        writer = Writer(sends_to.tracer, sends_to.ids, self.tracer.server, mask)
        await run_in_thread(partial(writer.write, traced, ended_ns))

    def _new_traceparent(self) -> str:
        context, exporting = self.span.get_span_context(), self.tracer.exporting
        span_id = format_span_id(exporting.ids.generate_span_id())
        return f"00-{format_trace_id(context.trace_id)}-{span_id}-{context.trace_flags & _SAMPLED:02x}"
