"""The sidecar's HTTP server: probes, state, metrics, a page for people, and the commands reload and drain."""
