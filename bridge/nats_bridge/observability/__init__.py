"""Observability: logs, metrics, traces, and HTTP with probes and the status page."""
