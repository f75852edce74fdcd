"""Whether there are traces, from the start of the operator to its end.

Without an endpoint nothing of OpenTelemetry is imported. What keeps traces from being sent is said in one line, and the
operator works without them. Start this before runs inherit the environment, and after the last ``fork``: the SDK has a
thread.
"""

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rolecall.runner.reconcile.traces import UNTRACED, ReconcileTracer
from rolecall.runner.record.otel_environment import asks_for_traces, protocol_in, take_headers
from rolecall.runner.record.recorder import Recorder
from rolecall.system.logs import get_logger

if TYPE_CHECKING:
    from rolecall.runner.record.exporting import Exporting

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
        from rolecall.runner.record.exporting import Exporting  # noqa: PLC0415 - imported only if there are traces
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
