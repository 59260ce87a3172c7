"""Models of connections in the configuration: the servers, and the files with the secrets."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from nats_bridge.settings.base import Flag, InsteadOf, Part, refused

CREDENTIALS: Final = ("creds", "nkey_seed_file", "token_file", "user")
"""Fields that identify the user; a connection has one of them."""
_API_PREFIXES: Final = ("domain", "api_prefix")
"""Fields that select a JetStream API; a connection has at most one of them."""
_IN_A_CONTEXT: Final = ("servers", *CREDENTIALS, "password_file", "tls")
"""Fields that a connection with a context cannot have."""

_SCHEMES = ("nats", "tls")
_WEB_SCHEMES = ("ws", "wss")
_EXAMPLE = "write it like nats://127.0.0.1:4222"


def check_server_url(url: str, *, secrets_allowed: bool = False) -> str | None:
    """Return the reason why `url` is unusable, or None.

    Args:
        url: a server's URL; the scheme and the port may be left out, as in nats-py.
        secrets_allowed: whether the URL may contain a user and password (as in native contexts).
    """
    if not url.strip():
        return f"a server's URL is empty; {_EXAMPLE}"
    full = url if "://" in url else f"nats://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        return f"'{_shown(url)}' has no valid port or host; {_EXAMPLE}"
    if "@" in parts.netloc and not secrets_allowed:
        return (
            f"'{_shown(url)}' contains a secret; remove it and use creds, nkey_seed_file, token_file, or"
            " user with password_file"
        )
    if parts.scheme in _WEB_SCHEMES:
        return (
            f"'{_shown(url)}': WebSocket is not supported: use nats:// or tls:// with the server's client port; if only"
            f" {parts.scheme}:// is open, run a nats-server next to the sidecar as a leaf node, and connect to it"
        )
    if parts.scheme not in _SCHEMES:
        return f"'{_shown(url)}': unknown scheme '{parts.scheme}'; use nats:// or tls://"
    if not parts.hostname or any(c.isspace() for c in full):
        return f"'{_shown(url)}' has no host; {_EXAMPLE}"
    if port == 0:
        return f"'{_shown(url)}': port 0 cannot be connected to; {_EXAMPLE}"
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        return f"'{_shown(url)}' must not have anything after the port; {_EXAMPLE}"
    return None


def _shown(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + ("…@" + rest.rpartition("@")[2] if "@" in rest else rest)


SECRET_FILES: Final = ("creds", "nkey_seed_file", "token_file", "password_file")
TLS_FILES: Final = ("ca", "cert", "key")
PATH_FIELDS: Final = frozenset({*SECRET_FILES, *TLS_FILES})
"""Fields of `Connection` and `Tls` with the path of a file, relative to the configuration file."""


def _listed(value: Any) -> Any:
    # The tools of nats accept servers with commas between them.
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value


def _is_literal(subject: str) -> bool:
    tokens = subject.split(".")
    return all(tokens) and not any(token in {"*", ">"} for token in tokens) and not any(c.isspace() for c in subject)


def domain_api(domain: str) -> str:
    """Return the prefix of requests to the JetStream of a domain."""
    return f"$JS.{domain}.API"


def domain_problem(value: str) -> str | None:
    """Return the reason why a text is not a JetStream domain, or None."""
    if _is_literal(value) and not set(value) & set(".*>") and value != "API":
        return None
    return f"'{value}' is not a JetStream domain; write the word in the server's jetstream {{domain: …}}"


def prefix_problem(value: str) -> str | None:
    """Return the reason why requests to JetStream cannot begin with a text, or None."""
    if _is_literal(value):
        return None
    return f"'{value}' cannot be a prefix of requests; use a subject such as '$JS.west.API', without a dot at the end"


def _inboxes_problem(value: str) -> str | None:
    # With a wildcard or an empty token, the client would subscribe to subjects of others.
    if _is_literal(value):
        return None
    return f"'{value}' cannot be a prefix of inboxes; use a subject such as '_INBOX_bridge'"


def _without(problem: Callable[[str], str | None]) -> AfterValidator:
    """Return a validator that refuses the values that have a problem."""

    def validated(value: str | None) -> str | None:
        if value is not None and (reason := problem(value)):
            raise refused(reason)
        return value

    return AfterValidator(validated)


_ServerUrl = Annotated[str, _without(check_server_url)]


class Tls(Part):
    """A connection's TLS settings."""

    ca: Path | None = Field(default=None, description="PEM file with trusted certificate authorities")
    cert: Path | None = Field(default=None, description="PEM file with the client's certificate; needs `key`")
    key: Path | None = Field(default=None, description="PEM file with the client's key; needs `cert`")
    handshake_first: Flag = Field(default=False, description="begin with TLS, for a server with `handshake_first`")
    hostname: str | None = Field(default=None, description="name to expect in the server's certificate")
    insecure: Flag = Field(default=False, description="do not verify the server's certificate (tests only)")


class Connection(Part):
    """One account on one NATS system."""

    servers: Annotated[
        tuple[_ServerUrl, ...], BeforeValidator(_listed, json_schema_input_type=str | list[_ServerUrl])
    ] = Field(
        default=(),
        description="URLs, such as nats://127.0.0.1:4222 or tls://example.com:4222",
        examples=[["nats://127.0.0.1:4222"]],
    )
    context: str | None = Field(
        default=None,
        min_length=1,
        description="context of the `nats` command line, instead of servers and credentials",
    )
    creds: Path | None = Field(default=None, description="credentials file (user JWT and seed)")
    nkey_seed_file: Annotated[Path | None, InsteadOf(("nkey", "nkey_seed", "seed"))] = Field(
        default=None, description="file with an NKey seed"
    )
    token_file: Annotated[Path | None, InsteadOf(("token",))] = Field(default=None, description="file with a token")
    user: str | None = Field(default=None, min_length=1, description="user name; needs `password_file`")
    password_file: Annotated[Path | None, InsteadOf(("password", "pass"))] = Field(
        default=None, description="file with the user's password"
    )
    tls: Tls | None = Field(default=None, description="TLS; not needed for tls:// with a publicly trusted certificate")
    domain: Annotated[str | None, _without(domain_problem)] = Field(
        default=None,
        description="JetStream domain of the streams",
        examples=["leaf"],
    )
    api_prefix: Annotated[str | None, _without(prefix_problem)] = Field(
        default=None,
        description="prefix of requests to JetStream, for example of an import; instead of `domain`",
        examples=["$JS.west.API"],
    )
    inbox_prefix: Annotated[str, _without(_inboxes_problem)] = Field(
        default="_INBOX", description="prefix of the inboxes"
    )
    connect_timeout: float = Field(default=5.0, gt=0, le=600, description="seconds to wait for a server's answer")
    reconnect_max_wait: float = Field(
        default=5.0,
        gt=0,
        le=600,
        description="longest wait between attempts to reconnect, in seconds; up to six times as long after refused"
        " credentials",
    )


def combination_problems(connection: Connection) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the fields that are missing, or cannot be combined with others, each with the problem."""
    if all(getattr(connection, field) for field in _API_PREFIXES):
        yield ("api_prefix",), "'api_prefix' cannot be combined with 'domain'; keep one of them"
    given = [field for field in _IN_A_CONTEXT if getattr(connection, field)]
    if connection.context:
        for field in given:
            yield (
                (field,),
                f"'{field}' cannot be combined with 'context', which already sets it; remove one of them",
            )
        return
    if not connection.servers:
        yield (), 'needs servers or a context, for example: servers: ["nats://127.0.0.1:4222"]'
    credentials = [field for field in CREDENTIALS if getattr(connection, field)]
    for field in credentials[1:]:
        yield (
            (field,),
            f"'{field}' cannot be combined with '{credentials[0]}'; a connection has only one user; keep one of them",
        )
    if connection.user and not connection.password_file:
        yield ("user",), "also needs 'password_file', the path of a file with the password"
    if connection.password_file and not connection.user:
        yield ("password_file",), "also needs 'user'"
