"""Histories in bulk, on Spark: a data source for JetStream, and the jobs capture, backfill and diff.

Needs Java 17 or newer. Coroutines that connect raise `UnreachableError` if no server answers. Those that send a request
raise `ApiError` if the server refuses it or does not answer. Their docstrings name only other errors.
"""
