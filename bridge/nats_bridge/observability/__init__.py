"""Logs, counters, and what rules report to metrics and traces."""
