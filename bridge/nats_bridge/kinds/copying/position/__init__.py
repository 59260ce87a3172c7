"""Finds out what a target holds of an entry, and where in the source to resume: `resuming` is the way in."""
