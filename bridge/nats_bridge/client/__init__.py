"""Talking to one server: connections, raw reads and fenced writes, the JetStream API, advisories."""
