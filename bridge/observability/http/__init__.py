"""What the sidecar tells over HTTP: probes, state, metrics, and a page for people. And the little it can be told."""
