"""Reads the source of an entry: chooses the filters for its server, and renames buckets in metadata of objects."""
