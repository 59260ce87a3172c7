"""Reloads: compare the configurations, prepare, then apply or roll back while the rules run."""
