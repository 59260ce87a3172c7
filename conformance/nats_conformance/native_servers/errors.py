"""Errors of native servers."""

from collections.abc import Sequence

from nats_conformance.errors import SubjectError


class ServersError(SubjectError):
    """Base of this package's errors."""


class InvalidVersionError(ServersError):
    """The text is neither a full version (2.10.27) nor a minor line (2.10)."""

    exit_code = 2


class WayFailedError(ServersError):
    """One way of getting a server failed, with the reason as text. The next way is tried."""


class ServerNotFoundError(ServersError):
    """No way led to a server of the wanted version. `attempts` contains (way, reason) in order."""

    def __init__(self, version: str, attempts: Sequence[tuple[str, str]]) -> None:
        self.version = version
        self.attempts = tuple(attempts)
        tried = "; ".join(f"{way}: {reason}" for way, reason in attempts)
        super().__init__(
            f"no nats-server {version} could be had ({tried}); install Go, or put the binary on PATH, "
            f"then: nats-conform servers fetch {version}"
        )


class ServerStartError(ServersError):
    """A server ended or did not become ready in time. `log_tail` contains its last log lines."""

    def __init__(self, message: str, log_tail: Sequence[str] = ()) -> None:
        self.log_tail = tuple(log_tail)
        super().__init__("\n".join([message, *log_tail]))


class PortTakenError(ServerStartError):
    """Another process uses the port a server was to listen on."""


class NoLeaderError(ServerStartError):
    """The servers of a cluster run, and do not agree on a meta leader."""
