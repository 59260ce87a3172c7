"""The reference pages and what makes them: `configuration.py` makes `configuration.md`, and so on.

    python -m docs.reference            # what would change
    python -m docs.reference --write    # and writes it

The pages are committed, so that they can be read where the source is, and so that a change of what users meet is seen
in the change that made it; a test compares them with the code.
"""
