"""A receiver of OpenTelemetry's own protocol, for tests: over HTTP, and over gRPC, with its official messages.

It keeps every span with the name of its service, and the headers of each request.
"""

import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

PATH = "/v1/traces"


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as it came; ids are in hexadecimal, ``parent`` is empty for the first of a trace."""

    service: str
    name: str
    trace: str
    ident: str
    parent: str
    start: int
    end: int
    kind: int
    attributes: Mapping[str, Any]
    is_error: bool
    links: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Collector:
    """The spans and headers received at ``url``."""

    url: str = ""
    headers: list[Mapping[str, str]] = field(default_factory=list)
    _spans: list[SeenSpan] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spans(self, service: str = "rolecall") -> list[SeenSpan]:
        """Return the spans of a service so far."""
        with self._lock:
            return [span for span in self._spans if span.service == service]

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of a request."""
        found = []
        for part in request.resource_spans:
            service = str(_values(part.resource.attributes).get("service.name", ""))
            found += [_seen(service, span) for scope in part.scope_spans for span in scope.spans]
        with self._lock:
            self._spans += found


@contextmanager
def http_collector() -> Iterator[Collector]:
    """Yield a receiver over HTTP on loopback."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == PATH
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.take(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """Yield a receiver over gRPC on loopback."""
    collector = Collector()

    class Service(TraceServiceServicer):
        def Export(  # noqa: N802 - the name in the protocol
            self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
        ) -> ExportTraceServiceResponse:
            collector.headers.append({str(name): str(value) for name, value in context.invocation_metadata()})
            collector.take(request)
            return ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call] # generated code
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _seen(service: str, span: Span) -> SeenSpan:
    return SeenSpan(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        ident=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        kind=span.kind,
        attributes=_values(span.attributes),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


def _values(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, which) if which else None
