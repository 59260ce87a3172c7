"""Runs next to a NATS server and provides republish, transforms, sources and mirrors that older servers lack."""
