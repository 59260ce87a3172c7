"""Republish rules: publish every stored message again, as servers do by ADR-28."""
