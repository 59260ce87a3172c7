"""What an account's server says of its streams and their consumers, and the file that keeps it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.transforms.timestamp import rfc3339_nano

__all__ = ["Account", "load_account", "read_account", "save_account"]

_FORMAT: Final = "nats-bridge failover 1"


@dataclass(frozen=True, slots=True)
class Account:
    """The streams of an account with their consumers.

    Attributes:
        taken: when the server was asked, RFC 3339.
        streams: each as `STREAM.INFO` gives it, by name.
        consumers: those of a stream, each as `CONSUMER.INFO` gives it, by the stream's name.
        silent: streams whose leader did not answer.
    """

    taken: str
    streams: dict[str, Json]
    consumers: dict[str, list[Json]]
    silent: tuple[str, ...] = ()

    def unlisted(self, stream: str) -> int:
        """How many consumers of a stream did not answer."""
        counted = int(self.streams[stream]["state"].get("consumer_count", 0))
        return max(counted - len(self.consumers.get(stream, ())), 0)


async def read_account(connection: Connection, wanted: Callable[[str], bool] = lambda _: True) -> Account:
    """Ask a server for all streams of its account, and the consumers of those whose name is wanted.

    Raises:
        ApiError: it cannot be asked.
    """
    taken = rfc3339_nano(time.time_ns()).decode()
    listed, silent = await connection.api.streams()
    streams = {str(info["config"]["name"]): info for info in listed if info["config"]["name"] not in silent}
    consumers = {
        name: await connection.api.consumers(name)
        for name, info in streams.items()
        if info["state"].get("consumer_count") and wanted(name)
    }
    return Account(taken, streams, consumers, tuple(silent))


def save_account(account: Account, path: Path) -> None:
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
    }
    written = path.with_name(f"{path.name}.new")
    try:
        written.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        written.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def load_account(path: Path) -> Account:
    """Read what `save_account` wrote.

    Raises:
        ConfigError: there is no such file, or it is another one.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        streams = {str(each["info"]["config"]["name"]): each for each in document[_FORMAT]}
        return Account(
            str(document["taken"]),
            {name: each["info"] for name, each in streams.items()},
            {name: each["consumers"] for name, each in streams.items()},
            tuple(document["silent"]),
        )
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: is no file that nats-bridge failover save wrote") from None
