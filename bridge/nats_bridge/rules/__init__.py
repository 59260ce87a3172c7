"""The shared parts of all kinds of rules: lifecycle, leadership, counters, loop checks."""
