"""Histories in bulk, on Spark: a data source for JetStream, and the jobs capture, backfill and diff.

Needs Java 17 or newer.
"""
