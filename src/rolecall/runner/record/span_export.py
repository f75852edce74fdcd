"""The SDK of OpenTelemetry, as far as the operator uses it: where spans go, and how that ends.

Spans wait in a queue of limited length for a thread that sends them; a collector that is slow or gone costs spans,
nothing else. The SDK reads its own variables: endpoint, headers, sampler, resource, limits. What it complains about is
said in the operator's log, each complaint once until spans get through again.

Ids of spans: random, unless a request was sent on with its id before its span is made.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Tracer

from rolecall.runner.record.traces import GRPC, HTTP, propagates, protocol_in, service_attributes
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger


class PresetIds(RandomIdGenerator):
    """Gives the next span of this thread the id that was preset, and any other a random one."""

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


logger = get_logger("traces")
FLUSH_SECONDS: Final = 3.0
"""How long the last spans may take at the end of the operator."""

_LIBRARY: Final = "opentelemetry"
_MOST_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class Exporting:
    """Sends spans; ``ids`` gives the next span an id that is known already."""

    tracer: Tracer
    ids: PresetIds
    propagates: bool
    _provider: TracerProvider
    _exporter: SpanExporter
    _complaints: "Complaints"

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> "Exporting":
        """Start as the environment of this process says.

        Raises ImportError if the exporter for the protocol is not installed, and ValueError if a variable is invalid.
        """
        complaints = Complaints()
        own_version = version("rolecall")
        exporter = _Reporting(_exporter_for(protocol_in(environment)), complaints)
        ids = PresetIds()
        resource = Resource.create(service_attributes(environment, own_version))
        provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=ids)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("rolecall", own_version)
        complaints.listen()
        return cls(tracer, ids, propagates(environment), provider, exporter, complaints)

    async def stop(self) -> None:
        """Send what is left, for at most ``FLUSH_SECONDS``."""
        # A daemon, which ends with the process: a request to a collector that does not answer cannot be interrupted.
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        await run_in_thread(lambda: last.join(FLUSH_SECONDS))
        if last.is_alive():
            logger.warning("The last spans are lost: the collector takes too long", limit_seconds=FLUSH_SECONDS)
        self._complaints.ignore()
        self._exporter.shutdown()


def _exporter_for(protocol: str) -> SpanExporter:
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc  # noqa: PLC0415 - may be missing

        return grpc.OTLPSpanExporter()
    if protocol == HTTP:
        from opentelemetry.exporter.otlp.proto.http import trace_exporter as http  # noqa: PLC0415 - as above

        return http.OTLPSpanExporter()
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL: found {protocol!r}, expected {HTTP} or {GRPC}")


class _Reporting(SpanExporter):
    """Tells when spans get through again."""

    def __init__(self, exporter: SpanExporter, complaints: "Complaints") -> None:
        self._exporter, self._complaints = exporter, complaints

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._complaints.over()
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return at once: nothing is kept here."""
        return self._exporter.force_flush(timeout_millis)


class Complaints(logging.Handler):
    """Puts the warnings of the SDK into the operator's log, each kind once until ``over``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[tuple[str, str]] = set()

    def listen(self) -> None:
        """Take the lines that would go to the log as they are."""
        library = logging.getLogger(_LIBRARY)
        library.addHandler(self)
        library.propagate = False

    def ignore(self) -> None:
        """Take no more lines; what a thread of the SDK says after this interests nobody."""
        library = logging.getLogger(_LIBRARY)
        library.removeHandler(self)
        library.addHandler(logging.NullHandler())

    def over(self) -> None:
        """Take note that spans get through."""
        if self._said:
            self._said.clear()
            logger.info("Spans are sent again")

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, if it has not been said."""
        kind = (record.name, str(record.msg))
        if kind not in self._said:
            self._said.add(kind)
            text = record.getMessage()[:_MOST_CHARACTERS]
            logger.warning("Spans may be lost; said once until they are sent again", error=text)
