"""Writing rows to streams: batch and streaming."""
