"""Comparisons on one machine: every figure is a ratio of things measured in the same run."""
