"""The errors of the suite itself."""

from __future__ import annotations


class ConformanceError(Exception):
    """Base of the suite's errors; the text is one or two lines for a person.

    Attributes:
        exit_code: what the command ends with; 2: what was asked for cannot be understood, 3: not reachable.
    """

    exit_code = 2


class CatalogueError(ConformanceError):
    """A case file cannot be read: the text names file, line and field."""


class HistoryError(ConformanceError):
    """A history is not one, or was written by a version that this one does not know."""


class SubjectError(ConformanceError):
    """A subject of test cannot be reached, or violates its protocol."""

    exit_code = 3
