import pytest

from rolecall.runner.record.traces import (
    asks_for_traces,
    propagates,
    protocol_in,
    service_attributes,
    take_headers,
)

GENERAL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
OF_TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}


@pytest.mark.parametrize("environment", [GENERAL, OF_TRACES, GENERAL | {"OTEL_SDK_DISABLED": "false"}])
def test_an_endpoint_asks_for_traces(environment: dict[str, str]) -> None:
    assert asks_for_traces(environment)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"},
        GENERAL | {"OTEL_SDK_DISABLED": "True"},
        GENERAL | {"OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_an_endpoint_or_turned_off_there_are_no_traces(environment: dict[str, str]) -> None:
    assert not asks_for_traces(environment)


def test_the_protocol_of_traces_takes_precedence_and_http_is_the_default() -> None:
    general = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert protocol_in({}) == "http/protobuf"
    assert protocol_in(general) == "grpc"
    assert protocol_in(general | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}) == "http/protobuf"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"service.name": "rolecall", "service.version": "1"}),
        ({"OTEL_SERVICE_NAME": "mine"}, {"service.version": "1"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=mine"}, {"service.version": "1"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.version=2"}, {"service.name": "rolecall"}),
    ],
)
def test_what_the_user_says_about_the_service_is_not_replaced(
    environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert service_attributes(environment, "1") == expected


@pytest.mark.parametrize(
    ("names", "expected"), [("", True), ("baggage,tracecontext", True), ("b3", False), ("none", False)]
)
def test_traceparent_is_sent_unless_other_propagators_are_named(names: str, *, expected: bool) -> None:
    assert propagates({"OTEL_PROPAGATORS": names}) is expected


def test_headers_for_collectors_are_taken_out_and_nothing_else() -> None:
    kept = GENERAL | {"OTEL_SERVICE_NAME": "mine", "HEADERS": "a"}
    hidden = {f"OTEL_EXPORTER_OTLP_{name}HEADERS": "token=secret" for name in ("", "TRACES_", "METRICS_", "LOGS_")}
    environment = kept | hidden
    take_headers(environment)
    assert environment == kept
