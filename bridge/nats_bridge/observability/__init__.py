"""Logs, counters, and the measurements of rules for metrics and traces."""
