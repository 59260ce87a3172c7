"""Comparing the engine and the bridge with native servers of chosen versions."""
