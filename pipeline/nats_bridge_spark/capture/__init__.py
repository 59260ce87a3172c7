"""Streams as Parquet: a capture is a directory of chunks, each named by its range of sequences.

`reading` is for other jobs; `capturing` creates and extends captures.
"""
