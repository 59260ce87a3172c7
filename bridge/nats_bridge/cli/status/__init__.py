"""The state of a running sidecar in a terminal."""
