"""Puts the history of a stream through a rule, into the rule's target or into files."""
