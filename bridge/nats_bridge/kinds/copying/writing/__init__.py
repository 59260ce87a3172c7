"""Writes copies: made by `encoder`, published by `publisher`, accounted for by `in_flight` until they are stored."""
