"""Histories in bulk, on Spark: a data source for JetStream, and the jobs capture, backfill and diff.

Needs the extra `spark` (`pip install nats-bridge[spark]`) and Java 17 or newer.
"""
