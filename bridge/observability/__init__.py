"""What an operator sees: logs, metrics, traces, and HTTP with probes and the status page."""
