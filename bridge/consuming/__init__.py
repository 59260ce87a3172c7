"""Reading one stream: its consumer, each message once and in order, ranges read again, the lag."""
