"""Reads the source of an entry: what its server filters, and what a copy of an object's metadata names."""
