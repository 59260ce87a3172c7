"""Comparing two histories: streams or captures, message by message, joined by what identifies a message."""
