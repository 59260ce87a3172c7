"""Streams as Parquet: a capture is a directory of chunks, each named by its range of sequences.

`parquet_files` reads captures for other jobs; `capturing` creates and extends them.
"""
