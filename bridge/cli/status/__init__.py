"""A running sidecar's state, seen from a terminal."""
