"""Republish rules: every stored message is published again, as ADR-28 has servers do it."""
