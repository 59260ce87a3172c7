"""The errors of the engine: every one carries a code that a program can test, and a text for a person."""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors of this package. `code` names the kind of error and never changes."""

    code: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownDialectError(EngineError):
    """A server version that is not in the table of dialects."""

    def __init__(self, message: str) -> None:
        super().__init__("unknown_dialect", message)


class TransformError(EngineError):
    """A source and a destination that the server would refuse, or a transform that cannot be reversed.

    `code` is one of `invalid_subject`, `invalid_transform`, `index_out_of_range`, `unknown_function`,
    `not_enough_arguments`, `too_many_arguments`, `invalid_argument`, `unused_wildcards` and `not_reversible`. `reason`
    is the server's own text (except for `not_reversible`, which no server returns).
    """

    reason: str

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.reason = reason

    def __reduce__(self) -> tuple[type[TransformError], tuple[str, str]]:
        return type(self), (self.code, self.reason)


class StreamConfigError(EngineError):
    """A stream configuration that the server would refuse, with the server's own answer.

    `http_code` and `err_code` are the numbers of the JetStream API error, `description` its text.
    """

    http_code: int
    err_code: int
    description: str

    def __init__(self, http_code: int, err_code: int, description: str) -> None:
        super().__init__(f"stream_config_{err_code}", description)
        self.http_code = http_code
        self.err_code = err_code
        self.description = description

    def as_dict(self) -> dict[str, int | str]:
        """Return the `error` member of the server's answer."""
        return {"code": self.http_code, "err_code": self.err_code, "description": self.description}

    def __reduce__(self) -> tuple[type[StreamConfigError], tuple[int, int, str]]:
        return type(self), (self.http_code, self.err_code, self.description)
