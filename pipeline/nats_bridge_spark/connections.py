"""Connections of tasks: from options of text, which travel to executors, to an open connection.

Options contain paths of secret files, never secrets. The files must exist on every node under the same path. A task
opens its own connections, with the sidecar's code.
"""

import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.errors import BridgeError, ServerUnreachableError
from nats_bridge.settings import Connection as ConnectionSettings
from nats_bridge.settings.connect_options import connect_options
from nats_bridge.settings.connections import combination_problems
from nats_bridge_spark.errors import OptionError, PipelineError, UnreachableError

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "servers": ("servers",),
    "context": ("context",),
    "creds": ("creds",),
    "nkeySeedFile": ("nkey_seed_file",),
    "tokenFile": ("token_file",),
    "user": ("user",),
    "passwordFile": ("password_file",),
    "tlsCa": ("tls", "ca"),
    "tlsCert": ("tls", "cert"),
    "tlsKey": ("tls", "key"),
    "tlsHandshakeFirst": ("tls", "handshake_first"),
    "tlsHostname": ("tls", "hostname"),
    "tlsInsecure": ("tls", "insecure"),
    "domain": ("domain",),
    "apiPrefix": ("api_prefix",),
    "inboxPrefix": ("inbox_prefix",),
    "connectTimeout": ("connect_timeout",),
}
"""The data source's connection options, with the place of each in a connection of the configuration."""

_OPTIONS: Final = {".".join(path): name for name, path in FIELDS.items()}
_PLACE: Final = re.compile(r"^connections\.servers\.([a-z_.]+): ")
_TLS_FIELDS: Final = "the connection's tls (ca, cert and key, hostname, handshake_first)"
_TLS_OPTIONS: Final = "tlsCa, tlsCert and tlsKey, tlsHostname, tlsHandshakeFirst"
_NAMES: Final = re.compile(
    r"(?:(?<=user/)|(?<![\w./-]))(?:nkey_seed_file|token_file|password_file|api_prefix)\b|(?<=')(?:ca|cert|key)(?=')"
)
"""Fields of a configuration in its texts: not in the names of files, and `tls` as it writes them."""


def connection_of(options: Mapping[str, str]) -> ConnectionSettings:
    """Return the connection that options describe, or raise an `OptionError`. Those not in `FIELDS` are ignored."""
    given: dict[str, Any] = {}
    for name in FIELDS.keys() & options.keys():
        *outer, last = FIELDS[name]
        place = given
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = options[name]
    if not given.get("servers") and not given.get("context"):
        raise OptionError('option servers: missing; set .option("servers", "nats://127.0.0.1:4222"), or context')

    def refused(field: tuple[int | str, ...], why: str) -> OptionError:
        fields = ((name, zip(path, field, strict=False)) for name, path in FIELDS.items() if name in options)
        option = next(name for name, pairs in fields if all(one == other for one, other in pairs))
        return OptionError(f"option {option}: {_by_options(why)}")

    try:
        connection = ConnectionSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise refused(first["loc"], first["msg"]) from None
    for field, problem in combination_problems(connection):
        raise refused(field, problem)
    return connection


def options_of(connection: ConnectionSettings) -> dict[str, str]:
    """Return the options that describe a connection of the configuration, for `connection_of`."""
    reported: dict[str, str] = {}
    for name, path in FIELDS.items():
        value: Any = connection
        for part in path:
            value = getattr(value, part, None)
        if value is None or value == () or value is False:
            continue
        reported[name] = ",".join(value) if isinstance(value, tuple) else str(value)
    return reported


def options_of_stream(
    connection: ConnectionSettings, stream: str, first: int | None, last: int | None, subjects: Collection[str]
) -> dict[str, str]:
    """Return the options of a read from a stream: between two sequences (None for no bound), with these subjects."""
    part = {"startSequence": first, "endSequence": last, "subjects": ",".join(subjects) or None}
    given = {name: str(value) for name, value in part.items() if value is not None}
    return options_of(connection) | {"stream": stream} | given


@asynccontextmanager
async def connected(
    connection: ConnectionSettings,
    *,
    client_name: str = "nats-bridge-spark",
    no_echo: bool = False,
    by_options: bool = False,
) -> AsyncIterator[Connection]:
    """An open connection, closed afterwards.

    Args:
        no_echo: whether the connection does not receive its own messages, as a `Publisher` requires.
        by_options: whether errors name the options of the data source.

    Raises:
        PipelineError: credentials are refused, or TLS is not to be had.
    """
    try:
        options = connect_options(connection, "servers") | {"no_echo": no_echo}
        opened = await open_connection("servers", options, client_name=client_name)
    except BridgeError as error:
        kind = UnreachableError if isinstance(error, ServerUnreachableError) else PipelineError
        raise kind(_by_options(str(error)) if by_options else str(error)) from None
    try:
        yield opened
    finally:
        await opened.close()


connected_by_options: Final = partial(connected, by_options=True)
"""Open a connection described by the options of a data source."""


def _by_options(text: str) -> str:
    """Return an error's text with the names of options instead of a configuration's."""
    text = text.removeprefix("connection 'servers': ").replace(_TLS_FIELDS, _TLS_OPTIONS)
    text = text.replace("check the connection's ", "check ")
    text = _PLACE.sub(lambda found: f"option {_OPTIONS.get(found[1], found[1])}: ", text)
    return _NAMES.sub(lambda found: _OPTIONS[found[0]] if found[0] in _OPTIONS else _OPTIONS[f"tls.{found[0]}"], text)
