"""Streams as Parquet: a capture is a directory of chunks, each of which is named by its range of sequences.

`reading` is what other jobs use; `capturing` makes and extends captures.
"""
