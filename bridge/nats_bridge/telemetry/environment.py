"""The settings in OpenTelemetry's standard environment variables that the sidecar supports: OTLP over HTTP.

OpenTelemetry itself reads endpoints, headers, certificates, intervals, samplers and resource attributes. This module
decides only whether it is loaded at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_PROTOCOL = "http/protobuf"
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True, slots=True)
class TelemetryExports:
    """The requested exports.

    Attributes:
        metrics: whether metrics are.
        traces: whether traces are, if the configuration makes any.
        remarks: sentences on requested exports that are not available.
    """

    metrics: bool
    traces: bool
    remarks: tuple[str, ...] = ()


def wanted(environment: Mapping[str, str]) -> TelemetryExports:
    """Read the wanted exports from the environment.

    A signal is exported if an endpoint is set, for all signals or for this one, or if its exporter is `otlp`. It is not
    exported if its exporter is `none`, or if OTEL_SDK_DISABLED is true.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TelemetryExports(metrics=False, traces=False)
    remarks: list[str] = []
    metrics = _signal(environment, "METRICS", remarks)
    traces = _signal(environment, "TRACES", remarks)
    return TelemetryExports(metrics, traces, tuple(remarks))


def _signal(environment: Mapping[str, str], signal: Literal["METRICS", "TRACES"], remarks: list[str]) -> bool:
    exporters = f"OTEL_{signal}_EXPORTER"
    named = [name.strip().lower() for name in environment.get(exporters, "").split(",") if name.strip()]
    # Prometheus is always there, at /metrics.
    strange = [name for name in named if name not in {"otlp", "none", "prometheus"}]
    if strange:
        remarks.append(f"{exporters}: there is no exporter '{strange[0]}' here, only otlp and none")
    endpoint = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or environment.get(_ENDPOINT)
    if named and "otlp" not in named:
        return False
    if not named and not endpoint:
        return False
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environment.get(name, "").strip():
            if protocol != _PROTOCOL:
                remarks.append(f"{name}: '{protocol}' is not spoken here, only {_PROTOCOL}: nothing is exported")
                return False
            break
    return True
