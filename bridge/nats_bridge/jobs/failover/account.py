"""Reads streams and consumers of an account, and saves them to a file. A plan can then be made when the source is
gone."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.errors import ConfigError
from nats_bridge.permissions.need import ANY_STREAM, Need, api_subject, write
from nats_transforms.timestamp import rfc3339_nano

_FORMAT: Final = "nats-bridge failover 1"


@dataclass(frozen=True, slots=True)
class AccountState:
    """The streams of an account with their consumers.

    Attributes:
        taken: the time of the requests, RFC 3339.
        streams: each as `STREAM.INFO` gives it, by name.
        consumers: the `CONSUMER.INFO` of each consumer, by the name of the stream.
        silent: streams whose leader did not answer.
        unlisted: the number of consumers of a stream that did not answer, if any.
    """

    taken: str
    streams: dict[str, Json]
    consumers: dict[str, list[Json]]
    silent: tuple[str, ...] = ()
    unlisted: dict[str, int] = field(default_factory=dict)


def saving_needs(*connections: str) -> Iterator[Need]:
    """Yield the needs of `read_account`, on each of the connections."""
    for connection in connections:
        yield write(connection, api_subject("STREAM.LIST"), "finds the streams")
        yield write(connection, api_subject("CONSUMER.LIST", ANY_STREAM), "their consumers")


async def read_account(connection: Connection, has_wanted: Callable[[str], bool] = lambda _: True) -> AccountState:
    """Ask a server for all streams of its account, and for consumers.

    Args:
        connection: a connection of the account.
        has_wanted: whether the consumers of a stream are wanted, by its name.
    """
    taken = rfc3339_nano(time.time_ns()).decode()
    listed, silent = await connection.api.streams()
    streams = {str(info["config"]["name"]): info for info in listed if info["config"]["name"] not in silent}
    consumers: dict[str, list[Json]] = {}
    unlisted: dict[str, int] = {}
    for name in streams:  # the count in a list omits consumers on other servers of a cluster
        if has_wanted(name):
            consumers[name], away = await connection.api.consumers_and_silent(name)
            unlisted |= {name: away} if away else {}
    return AccountState(taken, streams, consumers, tuple(silent), unlisted)


def save_account(account: AccountState, path: Path) -> None:
    """Write an account to a file, which is complete at any moment.

    Raises:
        ConfigError: it cannot be written.
    """
    document = {
        "taken": account.taken,
        _FORMAT: [
            {"info": info, "consumers": account.consumers.get(name, [])} for name, info in account.streams.items()
        ],
        "silent": list(account.silent),
        "unlisted": account.unlisted,
    }
    written = path.with_name(f"{path.name}.new")
    try:
        written.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        written.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def load_account(path: Path) -> AccountState:
    """Read a file that `save_account` wrote.

    Raises:
        ConfigError: the file does not exist or has another format.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        streams = {str(each["info"]["config"]["name"]): each for each in document[_FORMAT]}
        return AccountState(
            str(document["taken"]),
            {name: each["info"] for name, each in streams.items()},
            {name: each["consumers"] for name, each in streams.items()},
            tuple(document["silent"]),
            dict(document["unlisted"]),
        )
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: was not written by nats-bridge failover --save") from None
