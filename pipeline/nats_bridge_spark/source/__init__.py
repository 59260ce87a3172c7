"""Reading streams: batch and streaming."""
