"""The errors of the suite itself."""


class ConformanceError(Exception):
    """Base of the suite's errors. The text is one or two lines for a person.

    Attributes:
        exit_code: the exit code of the command; 2: the request is invalid, 3: not reachable.
    """

    exit_code = 2


class CatalogueError(ConformanceError):
    """A case file cannot be read: the text names file, line and field."""


class HistoryError(ConformanceError):
    """A file is not a history, or was written by an unknown version."""


class SubjectError(ConformanceError):
    """A subject of test cannot be reached, or violates its protocol."""

    exit_code = 3
