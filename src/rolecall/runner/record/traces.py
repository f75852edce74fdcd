"""Whether there are traces, from the start of the operator to its end.

Without an endpoint nothing of OpenTelemetry is imported. What keeps traces from being sent is said in one line, and the
operator works without them. Start this before runs inherit the environment, and after the last ``fork``: the SDK has a
thread.

What OpenTelemetry's own variables ask of the operator; everything else in them is read by its SDK.

Empty variables count as unset, as the specification has it.

What a reconcile tells about itself to whoever traces it; ``rolecall.runner.record`` is the operator's.

Without traces nothing is done and nothing is kept.
"""

import re
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import Ending, RunRecord
from rolecall.system.logs import get_logger

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS: Final = re.compile(r"OTEL_EXPORTER_OTLP_([A-Z]+_)?HEADERS")
HTTP, GRPC = "http/protobuf", "grpc"


def asks_for_traces(environment: Mapping[str, str]) -> bool:
    """Return whether traces are to be sent: there is an endpoint for them, and no variable turns them off."""
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return not is_disabled and exporters != "none" and bool(_first(ENDPOINTS, environment))


def protocol_in(environment: Mapping[str, str]) -> str:
    """Return the name of the protocol in which traces are sent."""
    return _first(_PROTOCOLS, environment).lower() or HTTP


def service_attributes(environment: Mapping[str, str], version: str) -> dict[str, str]:
    """Return what the operator says about itself where the user has said nothing."""
    given = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = {pair.partition("=")[0].strip() for pair in given.split(",")}
    if environment.get("OTEL_SERVICE_NAME", "").strip():
        named.add("service.name")
    own = {"service.name": "rolecall", "service.version": version}
    return {name: value for name, value in own.items() if name not in named}


def propagates(environment: Mapping[str, str]) -> bool:
    """Return whether requests carry ``traceparent``."""
    names = environment.get("OTEL_PROPAGATORS", "").strip() or "tracecontext"
    return "tracecontext" in {name.strip() for name in names.split(",")}


def take_headers(environment: MutableMapping[str, str]) -> None:
    """Take the headers for the collector, which are its tokens, out of what runs inherit."""
    for name in [name for name in environment if _HEADERS.fullmatch(name)]:
        del environment[name]


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    return next(filter(None, (environment.get(name, "").strip() for name in names)), "")


class ReconcileTrace(Protocol):
    """Follows one reconcile. Raises nothing."""

    def run_started(self, record: RunRecord | None) -> None:
        """Take note that the run starts, and give its requests their place in the trace."""

    def run_ended(self) -> None:
        """Take note that the run has ended."""

    async def finish(self, obj: RawObject, record: RunRecord | None, ending: Ending) -> None:
        """Take note of how the reconcile ended; call it before the record is given away."""


class ReconcileTracer(Protocol):
    """Follows all reconciles."""

    def start(self, watch: Watch, key: ObjectKey, ident: str, causes: tuple[Cause, ...]) -> ReconcileTrace:
        """Return what follows a reconcile that starts now."""


class Untraced:
    """Follows nothing."""

    def start(self, _watch: Watch, _key: ObjectKey, _ident: str, _causes: tuple[Cause, ...]) -> "Untraced":
        """Return itself."""
        return self

    def run_started(self, record: RunRecord | None) -> None:
        """Do nothing."""

    def run_ended(self) -> None:
        """Do nothing."""

    async def finish(self, obj: RawObject, record: RunRecord | None, ending: Ending) -> None:
        """Do nothing."""


UNTRACED = Untraced()


if TYPE_CHECKING:
    from rolecall.runner.record.span_export import Exporting

logger = get_logger("traces")
INSTALL = "pip install 'rolecall[otel]'"


@asynccontextmanager
async def exporting(environment: MutableMapping[str, str]) -> AsyncIterator["Exporting | None"]:
    """Yield what sends the spans, None if there are no traces; send what is left at the end, for a limited time.

    Headers for the collector are taken out of the environment: runs need not know its tokens.
    """
    started = _start(environment) if asks_for_traces(environment) else None
    if started is None:
        yield None
        return
    try:
        yield started
    finally:
        await started.stop()


def tracer_of(
    sends_to: "Exporting | None", recorder: Recorder | None, server: str, *, traces_unchanged: bool
) -> ReconcileTracer:
    """Return what follows the reconciles of an operator. ``server`` is the URL of its API server."""
    if sends_to is None or recorder is None:
        return UNTRACED
    from rolecall.runner.record.tracer import Tracer  # noqa: PLC0415 - imported only if there are traces

    return Tracer(sends_to, recorder, server, traces_unchanged)


def _start(environment: MutableMapping[str, str]) -> "Exporting | None":
    try:
        from rolecall.runner.record.span_export import Exporting  # noqa: PLC0415 - imported only if there are traces
    except ImportError as error:
        logger.warning("No traces are sent: OpenTelemetry is not installed", error=str(error), install=INSTALL)
        return None
    try:
        started = Exporting.start(environment)
    except ImportError:
        asked = protocol_in(environment)
        install = "pip install opentelemetry-exporter-otlp-proto-grpc"
        logger.warning("No traces are sent: the exporter is not installed", protocol=asked, install=install)
        return None
    except ValueError as error:
        logger.warning("No traces are sent: a variable of OpenTelemetry is invalid", error=str(error))
        return None
    take_headers(environment)
    logger.info("Traces are sent", protocol=protocol_in(environment))
    return started
