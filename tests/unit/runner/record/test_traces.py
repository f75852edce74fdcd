"""Traces as an operator starts and ends them, with receivers of the official protocol and without any."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import MutableMapping
from functools import partial
from importlib.metadata import version
from typing import Any, cast

import pytest
from opentelemetry.trace import Tracer as SdkTracer
from structlog.testing import capture_logs

from rolecall.runner.record import spans
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.spans import FLUSH_SECONDS, Tracer, service
from rolecall.runner.record.traces import (
    asks_for_traces,
    exporting,
    propagates,
    protocol_in,
    take_headers,
)
from tests.collector import grpc_collector, http_collector

UNREACHABLE = "http://127.0.0.1:9"
GENERAL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
OF_TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}
IMPORTED = """
import asyncio, sys
import rolecall.runner.operator
from rolecall.runner.record.traces import exporting

async def start():
    async with exporting({}) as traces:
        assert traces is None

asyncio.run(start())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def warnings(logs: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Return the warnings among log lines."""
    return [line for line in logs if line["log_level"] == "warning"]


def sdk_of(traces: partial[Tracer]) -> SdkTracer:
    """Return the tracer of the SDK."""
    return traces(cast("Recorder", None), UNREACHABLE).sdk


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set variables of the SDK, which reads them from its process."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    return monkeypatch


def test_without_an_endpoint_opentelemetry_is_not_imported() -> None:
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("missing", "protocol", "fields"),
    [
        ("opentelemetry.sdk.trace", "", {"install": "pip install 'rolecall[otel]'"}),
        ("opentelemetry.exporter.otlp.proto.grpc", "grpc", {"protocol": "grpc"}),
        ("", "http/json", {"error": "OTEL_EXPORTER_OTLP_PROTOCOL: found 'http/json', expected http/protobuf or grpc"}),
    ],
    ids=["the extra", "the exporter", "a known protocol"],
)
async def test_without_a_prerequisite_one_line_is_logged_and_nothing_is_exported(
    missing: str, protocol: str, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "rolecall.runner.record.spans", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with capture_logs() as logs:
        async with exporting(GENERAL | {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}) as traces:
            assert traces is None
    [line] = warnings(logs)
    assert fields.items() <= line.items()


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_spans_reach_a_receiver_of_the_official_protocol_with_headers(
    protocol: str, otel: pytest.MonkeyPatch
) -> None:
    otel.setattr(spans, "FLUSH_SECONDS", 60.0)  # a busy machine may give this process no CPU for seconds
    with (http_collector if protocol == "http/protobuf" else grpc_collector)() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-token=abc",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "OTEL_SERVICE_NAME": "mine",
        }
        for name, value in environment.items():
            otel.setenv(name, value)
        async with exporting(environment) as traces:
            assert traces is not None
            sdk_of(traces).start_span("one").end()
    assert [span.name for span in collector.spans("mine")] == ["one"]
    assert collector.headers[0]["x-token"] == "abc"
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in environment


async def test_sampler_of_the_environment_applies(otel: pytest.MonkeyPatch) -> None:
    otel.setenv("OTEL_TRACES_SAMPLER", "always_off")
    async with exporting({"OTEL_EXPORTER_OTLP_ENDPOINT": UNREACHABLE}) as traces:
        assert traces is not None
        assert not sdk_of(traces).start_span("one").is_recording()


async def test_unresponsive_collector_does_not_block_the_stop(
    otel: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, capture_logs() as logs:
        otel.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        otel.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
        async with exporting(dict(os.environ)) as traces:
            assert traces is not None
            sdk_of(traces).start_span("one").end()
            stopping = time.monotonic()
        assert time.monotonic() - stopping < FLUSH_SECONDS + 20.0
    assert "Dropped the last spans: collector timed out" in [line["event"] for line in logs]


async def test_unavailable_collector_is_logged_once_and_blocks_nothing(otel: pytest.MonkeyPatch) -> None:
    otel.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", UNREACHABLE)
    otel.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    otel.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    with capture_logs() as logs:
        async with exporting({"OTEL_EXPORTER_OTLP_ENDPOINT": UNREACHABLE}) as traces:
            assert traces is not None
            started = time.monotonic()
            for number in range(1000):
                sdk_of(traces).start_span(str(number)).end()
            assert time.monotonic() - started < 20.0
            stopping = time.monotonic()
        assert time.monotonic() - stopping < FLUSH_SECONDS + 20.0
    said = [str(line["error"]) for line in warnings(logs) if "error" in line]
    assert len([each for each in said if "Queue full" in each]) == 1
    assert len(said) < 6


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (GENERAL, True),
        (OF_TRACES, True),
        (GENERAL | {"OTEL_SDK_DISABLED": "false"}, True),
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"}, False),
        (GENERAL | {"OTEL_SDK_DISABLED": "True"}, False),
        (GENERAL | {"OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_need_an_endpoint_and_can_be_turned_off(environment: dict[str, str], *, expected: bool) -> None:
    assert asks_for_traces(environment) is expected


def test_protocol_of_traces_takes_precedence_and_http_is_the_default() -> None:
    general = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert protocol_in({}) == "http/protobuf"
    assert protocol_in(general) == "grpc"
    assert protocol_in(general | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}) == "http/protobuf"


@pytest.mark.parametrize(
    ("environment", "name", "own_version"),
    [
        ({}, "rolecall", version("rolecall")),
        ({"OTEL_SERVICE_NAME": "", "OTEL_RESOURCE_ATTRIBUTES": ""}, "rolecall", version("rolecall")),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine", version("rolecall")),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=mine"}, "mine", version("rolecall")),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.version=2"}, "rolecall", "2"),
    ],
)
def test_service_attributes_of_the_user_are_not_replaced(
    environment: dict[str, str], name: str, own_version: str, otel: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        otel.setenv(variable, value)
    attributes = service().attributes
    assert (attributes["service.name"], attributes["service.version"]) == (name, own_version)
    assert attributes["telemetry.sdk.language"] == "python"


@pytest.mark.parametrize(
    ("names", "expected"), [("", True), ("baggage,tracecontext", True), ("b3", False), ("none", False)]
)
def test_traceparent_is_sent_unless_other_propagators_are_named(names: str, *, expected: bool) -> None:
    assert propagates({"OTEL_PROPAGATORS": names}) is expected


def test_only_headers_for_collectors_are_removed() -> None:
    kept = GENERAL | {"OTEL_SERVICE_NAME": "mine", "HEADERS": "a"}
    hidden = {f"OTEL_EXPORTER_OTLP_{name}HEADERS": "token=secret" for name in ("", "TRACES_", "METRICS_", "LOGS_")}
    environment = kept | hidden
    take_headers(environment)
    assert environment == kept
