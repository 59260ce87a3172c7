"""Streams as Parquet: a capture is a directory with a manifest and chunks, each a range of sequences.

`reading` is what other jobs use; `capturing` makes and extends captures.
"""
