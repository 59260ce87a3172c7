"""Reads one stream: its consumer, each message once and in order, replayed ranges, the lag."""
