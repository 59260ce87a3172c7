"""Telemetry of the sidecar: metrics for Prometheus and OTLP, and traces."""
