"""The spans of reconciles: decided and numbered at the start, made from the record at the end, and exported.

The trace of a reconcile and its sampling are decided when it starts, so that each request can carry its trace; a run
has no other overhead. Names and attributes follow OpenTelemetry's semantic conventions where they exist. A span has no
body, query, header, or failure message; secret values of the run are masked in the rest, as in its record.

Spans wait in a queue of limited length for a thread that sends them; a slow or unavailable collector costs spans,
nothing else. The SDK reads its own variables: endpoint, headers, sampler, resource, limits. The operator logs the SDK's
warnings, each once until spans are sent again.

This module needs OpenTelemetry; ``traces`` imports it only if traces are exported.
"""

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Tracer as SdkTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from yarl import URL

from rolecall.kube.metadata import uid_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy.request_info import READ_VERBS
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.record.recorder import Recorder, without_text
from rolecall.runner.record.run_record import Ending, RunRecord, TaskRecord
from rolecall.runner.record.timeline import seconds_of
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.secrets.mask import Mask
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("traces")

Attributes = dict[str, str | bool | int | float | list[str]]

FLUSH_SECONDS: Final = 3.0
"""How long sending the last spans may take when the operator stops."""

_LIBRARY: Final = "opentelemetry"
_MAX_CHARACTERS: Final = 500
_TRACEPARENT_CHARACTERS: Final = 55
_SAMPLED: Final = 1
"""The only flag that requests carry: propagators of older libraries reject a ``traceparent`` with others."""

_NANOSECONDS: Final = 1_000_000_000
_FAILED: Final = frozenset({"failed", "unreachable", "unfinished"})
_FIRST_ERROR, _NOT_FOUND = 400, 404


@dataclass(frozen=True, slots=True)
class Tracer:
    """Traces reconciles. ``ids`` can preset the id of the next span; ``server`` is the URL of the API server."""

    sdk: SdkTracer
    ids: "PresetIds"
    propagates: bool
    recorder: Recorder
    server: str
    traces_unchanged: bool = True

    def start(self, watch: Watch, key: ObjectKey, ident: str, causes: tuple[Cause, ...]) -> "Trace":
        """Return the trace of a reconcile that starts now."""
        attributes: Attributes = {  # for samplers
            "k8s.object.api_version": watch.gvk.api_version,
            "k8s.object.kind": watch.gvk.kind,
            "k8s.object.name": key.name,
            "rolecall.job": ident,
        }
        attributes |= {"k8s.namespace.name": key.namespace} if key.namespace else {}
        span = self.sdk.start_span(f"reconcile {watch.gvk.kind}", attributes=attributes, start_time=self.now_ns())
        return Trace(self, watch, span, tuple(cause.text for cause in causes))

    def now_ns(self) -> int:
        """Return the wall clock time in nanoseconds since the epoch."""
        return int(self.recorder.clock.now() * _NANOSECONDS)


@dataclass(slots=True)
class Trace:
    """The trace of one reconcile. ``mask`` has the secret values of its run. No method raises."""

    tracer: Tracer
    watch: Watch
    span: Span
    causes: tuple[str, ...]
    run_started_ns: int = 0
    run_ended_ns: int = 0
    mask: Mask = field(default_factory=Mask)

    def run_started(self, record: RunRecord | None) -> None:
        """Record that the run starts; each of its requests will carry its own span id."""
        self.run_started_ns = self.tracer.now_ns()
        if record is not None and self.tracer.propagates:
            record.new_traceparent = self._new_traceparent

    def run_ended(self) -> None:
        """Record that the run has ended."""
        self.run_ended_ns = self.tracer.now_ns()

    async def finish(self, obj: RawObject, record: RunRecord | None, ending: Ending) -> None:
        """Make the spans, unless nothing changed and such reconciles aren't traced; never raise."""
        ended_ns = self.tracer.now_ns()
        if not self.span.is_recording():
            return
        if not self.tracer.traces_unchanged and _changed_nothing(record, ending):
            return  # a span that doesn't end is never sent
        try:
            if record is not None:
                self.mask = await self.tracer.recorder.mask_of(self.watch, record)
            await run_in_thread(partial(self._make_spans, obj, record, ending, ended_ns))
        except Exception as error:  # noqa: BLE001 - a trace must not fail a reconcile
            logger.warning("Failed to export a trace", error=without_text(error))

    def _new_traceparent(self) -> str:
        context = self.span.get_span_context()
        span_id = format_span_id(self.tracer.ids.generate_span_id())
        return f"00-{format_trace_id(context.trace_id)}-{span_id}-{context.trace_flags & _SAMPLED:02x}"

    def _make_spans(self, obj: RawObject, record: RunRecord | None, ending: Ending, ended_ns: int) -> None:
        """End the span of the reconcile, with those of the run, its tasks, and its requests below it."""
        span = self.span
        if uid := uid_of(obj):
            span.set_attribute("k8s.object.uid", uid)
        span.set_attribute("rolecall.causes", [self._masked(text) for text in self.causes])
        if ending.requeue_after_seconds is not None:
            span.set_attribute("rolecall.requeue_after_seconds", ending.requeue_after_seconds)
        if record is not None:
            self._run(record, ending.run)
        if ending.outcome != "succeeded":
            _fail(span, "reconcile" if ending.run.failure is None else ending.run.status)
        span.end(ended_ns)

    def _run(self, record: RunRecord, outcome: Outcome) -> None:
        name = self.watch.content_for(finalizing=record.is_finalizing).path.name
        attributes: Attributes = {"rolecall.finalizing": record.is_finalizing, "rolecall.content": name}
        if outcome.completion:
            attributes |= {
                f"ansible.tasks.{each}": getattr(outcome.counts, each) for each in ("ok", "changed", "skipped")
            }
        above, started_ns, sdk = set_span_in_context(self.span), self.run_started_ns, self.tracer.sdk
        run = sdk.start_span(f"run {name}", above, attributes=attributes, start_time=started_ns)
        below = set_span_in_context(run)
        spans: dict[tuple[str, str], Context] = {}
        for where, task in record.tasks.items():
            if task.has_run and (started := seconds_of(task.started)) is not None:
                spans[where] = self._task(task, below, int((started + task.duration_seconds) * _NANOSECONDS))
        last = record.unfinished_task
        if last is not None and seconds_of(last.started) is not None:
            hosts = {each.exchange.origin.host for each in record.exchanges if each.exchange.origin.task == last.ident}
            spans |= dict.fromkeys(((last.ident, host) for host in hosts), self._task(last, below, self.run_ended_ns))
        for kept in record.exchanges:
            origin = kept.exchange.origin
            self._request(kept.exchange, spans.get((origin.task, origin.host), below))
        if not outcome.is_successful:
            _fail(run, outcome.status)
        run.end(self.run_ended_ns)

    def _task(self, task: TaskRecord, above: Context, ended_ns: int) -> Context:
        name = self._masked(task.name)
        path, _, line = task.path.rpartition(":")
        result = task.result or "unfinished"
        attributes: Attributes = {
            "ansible.task.name": name,
            "ansible.task.action": task.action,
            "ansible.task.result": result,
        }
        attributes |= {"ansible.host": self._masked(task.host)} if task.host else {}
        attributes |= {"code.file.path": path, "code.line.number": int(line)} if line.isdecimal() else {}
        started_ns = int((seconds_of(task.started) or 0.0) * _NANOSECONDS)
        sdk = self.tracer.sdk
        span = sdk.start_span(name or "task", above, attributes=attributes, start_time=started_ns)
        if result in _FAILED:
            _fail(span, result)
        span.end(max(ended_ns, started_ns))
        return set_span_in_context(span)

    def _request(self, exchange: Exchange, above: Context) -> None:
        info, context = exchange.info, exchange.context
        resource = f"{info.resource}.{info.group}" if info.group else info.resource
        resource += f"/{info.subresource}" if info.subresource else ""
        server = URL(self.tracer.server)
        attributes: Attributes = {
            "server.address": server.host or "",
            "server.port": server.port or 0,
            "http.request.method": exchange.method,
            "url.path": self.mask.apply_to_path(exchange.target.partition("?")[0]),
            "rolecall.verb": info.verb,
        }
        if exchange.status is not None:
            attributes["http.response.status_code"] = exchange.status
        if context.given:
            self.tracer.ids.preset(_context_of(context.given).span_id)
        links = (Link(_context_of(context.carried)),) if context.carried else ()  # the trace that it arrived with
        started_ns = int(exchange.started * _NANOSECONDS)
        name = f"{exchange.method} {resource}" if info.is_resource else exchange.method
        sdk = self.tracer.sdk
        span = sdk.start_span(name, above, SpanKind.CLIENT, attributes, links, started_ns)
        if error := _error_of(exchange):
            _fail(span, error)
        span.end(started_ns + int(exchange.duration_seconds * _NANOSECONDS))

    def _masked(self, text: str) -> str:
        return str(self.mask.apply_to(text))


def _changed_nothing(record: RunRecord | None, ending: Ending) -> bool:
    """Return whether a reconcile succeeded and its run sent no write and changed nothing elsewhere."""
    if ending.outcome != "succeeded":
        return False
    if record is None:
        return True
    has_written = any(kept.exchange.info.is_write and not kept.exchange.info.is_dry_run for kept in record.exchanges)
    has_changed = any(task.result == "changed" for task in record.tasks.values())
    return not (record.is_finalizing or has_written or has_changed)


def _error_of(exchange: Exchange) -> str:
    """Return the error that ended a request, or an empty string; for a read or a delete, 404 isn't an error."""
    status, info = exchange.status, exchange.info
    if status is None:
        return "" if info.is_long_running else "no_answer"
    if status < _FIRST_ERROR or (status == _NOT_FOUND and (info.verb in READ_VERBS or info.is_removal)):
        return ""
    return str(status)


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _context_of(traceparent: str) -> SpanContext:
    """Return the trace, the span, and the flags of a valid ``traceparent``."""
    # Later versions may be longer, and the propagator rejects long ones.
    found = TraceContextTextMapPropagator().extract({"traceparent": traceparent[:_TRACEPARENT_CHARACTERS]})
    return get_current_span(found).get_span_context()


class PresetIds(RandomIdGenerator):
    """Generates random span ids, unless a request was sent with an id before its span exists."""

    def __init__(self) -> None:
        self._preset = threading.local()

    def preset(self, span_id: int) -> None:
        """Give the next span of this thread this id."""
        self._preset.span_id = span_id

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        span_id: int = getattr(self._preset, "span_id", 0)
        self._preset.span_id = 0
        return span_id or super().generate_span_id()


@asynccontextmanager
async def exporting_spans(protocol: str, *, propagates: bool) -> AsyncIterator[partial[Tracer]]:
    """Yield a tracer that sends spans with a protocol, and lacks a recorder and a server.

    At the end, send the remaining spans, for at most ``FLUSH_SECONDS``.

    The SDK reads its other settings from the environment. Raise ImportError if the exporter for the protocol isn't
    installed, and ValueError if a variable is invalid.
    """
    sdk_logs = SdkLogHandler()
    exporter = _Exporter(_exporter_for(protocol), sdk_logs)
    ids = PresetIds()
    provider = TracerProvider(resource=service(), shutdown_on_exit=False, id_generator=ids)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    library = logging.getLogger(_LIBRARY)
    library.addHandler(sdk_logs)
    library.propagate = False
    try:
        yield partial(Tracer, provider.get_tracer("rolecall", version("rolecall")), ids, propagates)
    finally:
        # A daemon, which ends with the process: a request to an unresponsive collector can't be interrupted.
        last = threading.Thread(target=provider.shutdown, name="last-spans", daemon=True)
        last.start()
        await run_in_thread(lambda: last.join(FLUSH_SECONDS))
        if last.is_alive():
            logger.warning("Dropped the last spans: collector timed out", limit_seconds=FLUSH_SECONDS)
        library.removeHandler(sdk_logs)  # later warnings of the SDK's thread don't matter
        library.addHandler(logging.NullHandler())
        exporter.shutdown()


def service() -> Resource:
    """Return the attributes of the operator; those that the user has set take precedence."""
    own = Resource.create({"service.name": "rolecall", "service.version": version("rolecall")})
    return own.merge(OTELResourceDetector().detect())


def _exporter_for(protocol: str) -> SpanExporter:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc  # noqa: PLC0415 - may be missing

        return grpc.OTLPSpanExporter()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http import trace_exporter as http  # noqa: PLC0415 - as above

        return http.OTLPSpanExporter()
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL: found {protocol!r}, expected http/protobuf or grpc")


class _Exporter(SpanExporter):
    """Notifies the log handler when spans are sent."""

    def __init__(self, exporter: SpanExporter, sdk_logs: "SdkLogHandler") -> None:
        self._exporter, self._sdk_logs = exporter, sdk_logs

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._sdk_logs.reset()
        return result

    def shutdown(self) -> None:
        """Cancel sending."""
        self._exporter.shutdown()


class SdkLogHandler(logging.Handler):
    """Puts the warnings of the SDK into the operator's log, each kind once until ``reset``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged: set[tuple[str, str]] = set()

    def reset(self) -> None:
        """Log each warning again, because spans are sent."""
        if self._logged:
            self._logged.clear()
            logger.info("Spans are sent again")

    def emit(self, record: logging.LogRecord) -> None:
        """Log a warning, unless it was logged before."""
        kind = (record.name, str(record.msg))
        if kind not in self._logged:
            self._logged.add(kind)
            text = record.getMessage()[:_MAX_CHARACTERS]
            logger.warning("Spans may be lost; logged once until they are sent again", error=text)
