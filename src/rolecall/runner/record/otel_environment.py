"""What OpenTelemetry's own variables ask of the operator; everything else in them is read by its SDK.

Empty variables count as unset, as the specification has it.
"""

import re
from collections.abc import Mapping, MutableMapping
from typing import Final

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
