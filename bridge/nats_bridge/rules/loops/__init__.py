"""Finds loops through streams, their native features, and the rules."""
