"""Hands rules of kind sources and kv_sources over to a server, and back."""
