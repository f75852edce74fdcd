"""Whether the operator exports traces, and how it starts; ``spans`` makes and sends them.

Without an endpoint, nothing of OpenTelemetry is imported. A problem that prevents traces is logged in one line, and the
operator works without them. Start this before runs inherit the environment, and after the last ``fork``: the SDK has a
thread.

OpenTelemetry's own variables configure everything; its SDK reads those that aren't read here. As in its specification,
empty variables count as unset.
"""

import re
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from rolecall.system.logs import get_logger

if TYPE_CHECKING:
    from rolecall.runner.record.spans import Tracer

logger = get_logger("traces")

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS: Final = re.compile(r"OTEL_EXPORTER_OTLP_([A-Z]+_)?HEADERS")
INSTALL: Final = "pip install 'rolecall[otel]'"


@asynccontextmanager
async def exporting(environment: MutableMapping[str, str]) -> AsyncIterator["partial[Tracer] | None"]:
    """Yield a tracer without a recorder, or None without traces; at the end, send remaining spans for a limited time.

    The headers for the collector are removed from the environment: runs don't need its tokens.
    """
    async with AsyncExitStack() as stack:
        yield await _start(environment, stack) if asks_for_traces(environment) else None


async def _start(environment: MutableMapping[str, str], stack: AsyncExitStack) -> "partial[Tracer] | None":
    try:
        from rolecall.runner.record.spans import exporting_spans  # noqa: PLC0415 - imported only if there are traces
    except ImportError as error:
        logger.warning("No traces are sent: OpenTelemetry is not installed", error=str(error), install=INSTALL)
        return None
    protocol = protocol_in(environment)
    try:
        started = await stack.enter_async_context(exporting_spans(protocol, propagates=propagates(environment)))
    except ImportError:
        install = "pip install opentelemetry-exporter-otlp-proto-grpc"
        logger.warning("No traces are sent: the exporter is not installed", protocol=protocol, install=install)
        return None
    except ValueError as error:
        logger.warning("No traces are sent: a variable of OpenTelemetry is invalid", error=str(error))
        return None
    take_headers(environment)
    logger.info("Exporting traces", protocol=protocol)
    return started


def asks_for_traces(environment: Mapping[str, str]) -> bool:
    """Return whether there is an endpoint for traces, and no variable turns them off."""
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return not is_disabled and exporters != "none" and bool(_first(ENDPOINTS, environment))


def protocol_in(environment: Mapping[str, str]) -> str:
    """Return the name of the protocol for traces."""
    return _first(_PROTOCOLS, environment).lower() or "http/protobuf"


def propagates(environment: Mapping[str, str]) -> bool:
    """Return whether requests carry ``traceparent``."""
    names = environment.get("OTEL_PROPAGATORS", "").strip() or "tracecontext"
    return "tracecontext" in {name.strip() for name in names.split(",")}


def take_headers(environment: MutableMapping[str, str]) -> None:
    """Remove the headers for the collector, which contain its tokens, from the environment of runs."""
    for name in [name for name in environment if _HEADERS.fullmatch(name)]:
        del environment[name]


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    return next(filter(None, (environment.get(name, "").strip() for name in names)), "")
