"""What others are told of the sidecar: metrics for Prometheus and OTLP, and traces."""
