"""The errors of the pipelines, one class for each reaction; see `nats_bridge.errors` for the members.

An error that a task raises reaches the driver as text inside of Spark's own exception: `reported` finds it there again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nats_bridge.errors import EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE, BridgeError

_MARK: Final = "nats-bridge says: "
_SAID: Final = re.compile(re.escape(_MARK) + r"\[(?P<kind>\w+)\] (?P<text>.*?) \|\|", re.DOTALL)


class PipelineError(BridgeError):
    """Base of everything the pipelines raise on purpose.

    Its text is marked, so that the driver can find it in Spark's error for a failed task.
    """

    code = "pipeline"
    exit_code = EXIT_NO


class SparkMissingError(PipelineError):
    """PySpark or Java is not there, or cannot be used."""

    code = "spark_missing"
    exit_code = EXIT_USAGE


class OptionError(PipelineError):
    """An option of the data source or of a job is missing or wrong."""

    code = "option"
    exit_code = EXIT_USAGE


class StreamExistsError(OptionError):
    """A stream exists that a restore would create."""


class SchemaError(PipelineError):
    """Columns are missing, unknown or of another type."""

    code = "schema"
    exit_code = EXIT_USAGE


class DataLostError(PipelineError):
    """The data to read no longer exists: the stream has removed a range, or was recreated."""

    code = "data_lost"


class RowError(PipelineError):
    """A row cannot be written; the message names it."""

    code = "row"


class UnreachableError(PipelineError):
    """A task found no server, or lost it permanently."""

    code = "unreachable"
    exit_code = EXIT_UNREACHABLE
    retriable = True


class JobFailedError(PipelineError):
    """Spark gave up a job for a reason of its environment: a lost executor, no memory, a full disk."""

    code = "job_failed"
    retriable = True


class JobStoppedError(PipelineError):
    """A signal ended a job. The message explains which results are kept, and how to continue.

    Args:
        exit_code: 130 after SIGINT, 143 after SIGTERM.
    """

    code = "stopped"
    retriable = True

    def __init__(self, message: str, *, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # the signal decides it, not the class


@contextmanager
def marking() -> Iterator[None]:
    """Run a task or data source. Errors of this package leave it with a marked text for `reported`."""
    try:
        yield
    except JobStoppedError:  # of a job in this process, whose signal is its exit code
        raise
    except BridgeError as error:
        own = own_error(error)
        if own.message.startswith(_MARK):
            raise
        raise type(own)(f"{_MARK}[{type(own).__name__}] {own.message} ||") from None


def own_error(error: BridgeError) -> PipelineError:
    """Return an error of the bridge as one of the pipelines."""
    if isinstance(error, PipelineError):
        return error
    # Only a server that does not answer may recover; every other error is an answer.
    kind = UnreachableError if error.exit_code == EXIT_UNREACHABLE or error.retriable else PipelineError
    return kind(str(error))


def reported(error: BaseException) -> PipelineError | None:
    """Return the error of a task or data source from Spark's exception; None if it has none."""
    if isinstance(error, PipelineError) and not error.message.startswith(_MARK):
        return error
    said = _SAID.search(str(error))
    kinds = {kind.__name__: kind for kind in PipelineError.__subclasses__()}
    return kinds.get(said["kind"], PipelineError)(said["text"]) if said else None
