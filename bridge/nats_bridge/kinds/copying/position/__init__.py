"""Finds the copies of an entry in its target, and where to resume in the source. The entry point is `resuming`."""
