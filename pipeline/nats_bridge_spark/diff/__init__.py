"""Compares two histories, streams or captures, message by message, joined by the identity of a message."""
