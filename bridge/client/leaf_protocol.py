"""The protocol of leaf connections, without I/O: parses bytes into events, and encodes operations.

As nats-server speaks it to a leaf that connected to it (2.9.10 to 2.15.1; `server/leafnode.go`, `server/parser.go`):

* the server begins with INFO, in clear unless its listener does TLS first; the leaf answers with TLS, where one of the
  two asks for it, and CONNECT;
* `LS+ subject` and `LS- subject` announce interest, both ways, with a queue group and its weight behind the subject.
  After CONNECT the server announces all that the account's subscriptions want of a leaf;
* `LMSG subject [reply] size` and `HMSG subject [reply] header-size size` carry messages both ways. With a list of queue
  groups there is `+ reply` or `|` in place of the reply subject;
* a reply subject `$JS.ACK.…@subject` makes the server deliver the message with that subject, as it does for what
  another server's consumers send; a message of a plain client cannot do that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from nats_bridge.bridge.client.operations import LONGEST_LINE, checked_size

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

_END: Final = b"\r\n"


class LeafProtocolError(Exception):
    """The server sent something that is no leaf protocol."""


class Info(NamedTuple):
    """The server describes itself; the second one, after CONNECT, has the user's permissions.

    Attributes:
        members: the JSON object.
    """

    members: dict[str, Any]

    @property
    def version(self) -> str:
        """The server's version, such as `2.10.27`."""
        return str(self.members.get("version", ""))


class Interest(NamedTuple):
    """The server's side subscribed, or ended its last subscription.

    Attributes:
        subject: what to.
        added: whether it subscribed.
    """

    subject: bytes
    added: bool


class Message(NamedTuple):
    """A message from the server's side; `reply` and `block` are empty where it has none."""

    subject: bytes
    reply: bytes
    block: bytes
    payload: bytes


class Ping(NamedTuple):
    """The server wants a PONG."""


class Pong(NamedTuple):
    """The server has handled everything written before a PING."""


class Refused(NamedTuple):
    """An error of the server's; it may close the connection after it.

    Attributes:
        text: without quotes.
    """

    text: str


Event: TypeAlias = Info | Interest | Message | Ping | Pong | Refused


class LeafParser:
    """Parses what a server sends into events; reads may end anywhere."""

    def __init__(self) -> None:
        self._unread = b""
        self._wanted = 0  # bytes of `_unread` below which nothing more can be cut

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete with these bytes.

        Raises:
            LeafProtocolError: they are none.
        """
        self._unread += data
        if len(self._unread) < self._wanted:
            return []
        try:
            return self._cut()
        except (ValueError, IndexError, RecursionError) as error:
            raise LeafProtocolError(f"cannot read what the server sent: {error}") from error

    def _cut(self) -> list[Event]:
        data, position, found = self._unread, 0, list[Event]()
        self._wanted = 0
        while (line_end := data.find(_END, position)) >= 0:
            line = data[position:line_end]
            kind, _, rest = line.partition(b" ")
            start = line_end + len(_END)
            if kind in (b"LMSG", b"HMSG"):
                fields = rest.split(b" ")
                stop = start + checked_size(int(fields[-1]))
                if stop + len(_END) > len(data):
                    self._wanted = stop + len(_END) - position
                    break
                found.append(_message(kind, fields, data[start:stop]))
                start = stop + len(_END)
            elif (event := _control(kind, rest)) is not None:
                found.append(event)
            position = start
        else:
            if len(data) - position > LONGEST_LINE:
                raise ValueError(f"a line of more than {LONGEST_LINE} bytes")
        self._unread = data[position:]
        return found


def _message(kind: bytes, fields: list[bytes], body: bytes) -> Message:
    sizes = 2 if kind == b"HMSG" else 1
    subject, *between = fields[:-sizes]
    if between and between[0] == b"+":
        between = between[1:2]
    elif between and between[0] == b"|":
        between = []
    head = checked_size(int(fields[-2])) if sizes == 2 else 0
    if head > len(body) or len(between) > 1:
        raise ValueError(f"{kind!r} with {fields!r}")
    return Message(subject, between[0] if between else b"", body[:head], body[head:])


def _control(kind: bytes, rest: bytes) -> Event | None:
    """The event of a line that is no message; None for what a leaf may ignore."""
    match kind.upper():
        case b"LS+":
            return Interest(rest.split(b" ")[0], True)
        case b"LS-":
            return Interest(rest.split(b" ")[0], False)
        case b"PING":
            return Ping()
        case b"PONG":
            return Pong()
        case b"INFO":
            members = json.loads(rest)
            if isinstance(members, dict):
                return Info(members)
        case b"-ERR":
            return Refused(rest.decode("utf-8", "replace").strip("' "))
        case b"+OK":
            return None
    raise ValueError(f"protocol line {kind[:80]!r}")


def connect_line(info: Info, name: str, credentials: Mapping[str, str]) -> bytes:
    """The CONNECT operation.

    Args:
        info: the server's; its version is sent as our own, so that a listener's `min_version` accepts it.
        name: the leaf's name in the server's lists; other leaves may have the same.
        credentials: `user` and `pass`, `auth_token`, `jwt`, `nkey` and `sig`, those that are set.
    """
    members = {"name": name, "version": info.version, "headers": True, **credentials}
    return b"CONNECT " + json.dumps(members).encode() + _END


def announcement(subject: bytes) -> bytes:
    """The operation that subscribes."""
    return b"LS+ %b\r\n" % subject


def message(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bytes:
    """The operation that sends a message; an empty `reply` or `block` is none."""
    to = b"%b %b " % (subject, reply) if reply else subject + b" "
    if not block:
        return b"LMSG %b%d\r\n%b\r\n" % (to, len(payload), payload)
    return b"HMSG %b%d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(payload), block, payload)
