"""What stops a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A benchmark cannot be carried out; the text names what failed and why."""
