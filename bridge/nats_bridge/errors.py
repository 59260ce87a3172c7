"""The errors of the bridge, one class per exit code or reaction.

A message is one or two lines: the place (file:line:column, connection, rule, field), the value, and a correct
alternative. `code` is for programs. `exit_code` is the exit code of commands (2 usage or configuration, 3 server not
reachable, 1 a negative answer). `retriable` tells whether a retry can help. Errors of libraries are mapped to these
once, at the boundary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nats_bridge.api_error_codes import class_of

if TYPE_CHECKING:
    from nats_bridge.settings.problems import Problem

EXIT_GOOD: Final = 0
EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3


class BridgeError(Exception):
    """Base of all errors that the bridge raises on purpose.

    Args:
        message: one or two lines for a person.
        retriable: overrides the class's answer to "can trying again help?".

    Attributes:
        problems: the message, or a list if it has several problems.
        err_code: the number of a server's own error; 0 if there is none.
    """

    code: str = "bridge"
    err_code: int = 0
    exit_code: int = EXIT_NO
    retriable: bool = False

    def __init__(self, message: str, *, retriable: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.problems: tuple[str, ...] = (message,)
        if retriable is not None:
            self.retriable = retriable

    def __str__(self) -> str:
        return self.message

    @property
    def passing(self) -> bool:
        """Whether a running rule waits and retries."""
        return self.retriable


class ConfigError(BridgeError):
    """The configuration is wrong. The message has one line for each problem.

    Args:
        message: the lines.
        problems: the lines of the message; the message itself if left out.
        quotes: for each problem, the line of the file that it is about, or nothing.
        found: the problems of a configuration's values, with their places in it.
    """

    code = "configuration"
    exit_code = EXIT_USAGE

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[str, ...] = (),
        quotes: tuple[str, ...] = (),
        found: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(message)
        self.found = found
        self.problems = problems or (message,)
        self.quotes = quotes or ("",) * len(self.problems)

    @property
    def with_quotes(self) -> str:
        """The problems, each with its line of the file below it."""
        return "\n".join(part for pair in zip(self.problems, self.quotes, strict=True) for part in pair if part)


class CredentialsError(BridgeError):
    """The server refuses the credentials, or a credentials file is unusable."""

    code = "credentials"
    exit_code = EXIT_USAGE


class ServerUnreachableError(BridgeError):
    """No server of a connection answers."""

    code = "server_unreachable"
    exit_code = EXIT_UNREACHABLE
    retriable = True


class ConnectionLostError(BridgeError):
    """A connection was lost and did not come back in time."""

    code = "connection_lost"
    exit_code = EXIT_UNREACHABLE
    retriable = True


class StreamMissingError(BridgeError):
    """A rule's stream does not exist.

    Args:
        message: one or two lines for a person.
        connection: the connection that was searched.
    """

    code = "stream_missing"
    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, connection: str, stream: str) -> None:
        super().__init__(message)
        self.connection = connection
        self.stream = stream


class RuleRefusedError(BridgeError):
    """The rule is valid, but is not run, because it would loop or change the contents of its stream.

    Args:
        message: one or two lines for a person.
        err_code: the number of the error with which a server refuses the same; 0 if it does not.
    """

    code = "rule_refused"
    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, err_code: int = 0) -> None:
        super().__init__(message)
        self.err_code = err_code


class ConsumerInUseError(RuleRefusedError):
    """Another process is reading from the rule's durable consumer, or did so a moment ago."""

    code = "consumer_in_use"


class ApiError(BridgeError):
    """The JetStream API answered with an error, or did not answer.

    Whatever asks a server may raise it. A docstring names it only if that tells more.

    Args:
        message: one or two lines for a person.
        http_code: the server's `code` (408 when it did not answer in time).
        err_code: the server's `err_code`, 0 when there is none.
        description: the server's own words.
        retriable: whether trying again can help.
    """

    code = "api"
    exit_code = EXIT_NO

    def __init__(
        self, message: str, *, http_code: int = 408, err_code: int = 0, description: str, retriable: bool = False
    ) -> None:
        super().__init__(message, retriable=retriable)
        self.http_code = http_code
        self.err_code = err_code
        self.description = description

    @property
    def passing(self) -> bool:
        """Whether a rule waits: no answer in time, or a code that `api_error_codes` calls passing."""
        if not self.err_code:
            return self.retriable or self.http_code == 503
        return self.retriable or class_of(self.err_code) == "passing"


class NotPermittedError(ApiError):
    """The user lacks the permission for a request that the sidecar needs.

    Args:
        subject: the request's subject.
    """

    code = "not_permitted"
    exit_code = EXIT_USAGE

    def __init__(self, place: str, subject: str) -> None:
        super().__init__(
            f"{place}: the user may not publish to {subject}: allow it in the user's permissions",
            http_code=403,
            err_code=0,
            description="permissions violation",
        )


class InboxRefusedError(ApiError):
    """The user lacks the permission to subscribe to an inbox. No answer arrives until the permissions change.

    Args:
        subject: the inbox.
    """

    code = "inbox_refused"
    exit_code = EXIT_USAGE
    retriable = True

    def __init__(self, place: str, subject: str) -> None:
        super().__init__(
            f"{place}: the user may not subscribe to the inbox {subject}: allow it in the user's permissions,"
            " or set the connection's inbox_prefix",
            http_code=403,
            err_code=0,
            description="permissions violation",
            retriable=True,
        )
