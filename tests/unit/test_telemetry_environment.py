"""What the standard variables ask for."""

import pytest

from nats_bridge.telemetry.environment import wanted

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environment", "metrics", "traces"),
    [
        ({}, False, False),
        (ENDPOINT, True, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}, True, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, False, True),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, True, False),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, True, False),
        (ENDPOINT | {"OTEL_METRICS_EXPORTER": "prometheus"}, False, True),
        (ENDPOINT | {"OTEL_METRICS_EXPORTER": "prometheus, otlp"}, True, True),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, False, False),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "false"}, True, True),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False, False),
    ],
)
def test_signals(environment: dict[str, str], metrics: bool, traces: bool) -> None:
    found = wanted(environment)
    assert (found.metrics, found.traces, found.remarks) == (metrics, traces, ())


def test_what_is_not_there_is_said() -> None:
    found = wanted(
        ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    )
    assert (found.metrics, found.traces) == (False, True)
    assert found.remarks == (
        "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not spoken here, only http/protobuf: nothing is exported",
    )
    found = wanted(ENDPOINT | {"OTEL_TRACES_EXPORTER": "zipkin"})
    assert (found.metrics, found.traces) == (True, False)
    assert found.remarks == ("OTEL_TRACES_EXPORTER: there is no exporter 'zipkin' here, only otlp and none",)
