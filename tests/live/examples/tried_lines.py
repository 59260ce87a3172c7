"""The lines to try an example with, understood where they are about streams and messages, and done on real servers.

Each line is a command of the `nats` command line as its manual has it; what is in brackets behind it is for people.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.live.raw_messages import Collected, RawPeer

ROOT = Path(__file__).parents[3]
_DEFAULT_SERVER = "nats://127.0.0.1:4222"


def lines_to_try(example: Path) -> list[list[str]]:
    """The words of every command in an example's `Try it`, in its order; several in brackets count, too."""
    tried = example.read_text("utf-8").partition("# Try it")[2].partition("\n\n")[0]
    commands = []
    for line in tried.splitlines()[1:]:
        text = line.removeprefix("#").strip()
        plain = re.sub(r"\s+\(.*\)$", "", text)
        commands.append(shlex.split(plain))
        if also := re.search(r"\(and (.*)\)$", text):
            first = shlex.split(plain)
            others = re.split(r", | and ", also[1])
            commands += [[*first[:2], *shlex.split(more), *first[3:]] for more in others]
    return [words for words in commands if words]


class Tried:
    """Does what the lines say.

    Args:
        peers: a connection for each address that an example names.
    """

    def __init__(self, peers: dict[str, RawPeer]) -> None:
        self._peers = peers
        self.subscribed: list[tuple[str, Collected]] = []
        self.viewed: list[tuple[RawPeer, str]] = []

    async def do(self, words: list[str]) -> None:
        """One command; what is not about messages is left out.

        Raises:
            AssertionError: a server refuses it, or the command is unknown.
        """
        if words[0] != "nats":
            assert words[0] in ("nats-bridge", "nats-server", "curl", "mkdir") or words[0].startswith("BRIDGE_"), words
            return
        address = _DEFAULT_SERVER
        if words[1] == "-s":
            address = words[2]
            words = ["nats", *words[3:]]
        options, values = _taken_apart(words[1:])
        peer = self._peers[address]
        todo = _COMMANDS.get(tuple(values[:2])) or _COMMANDS.get(tuple(values[:1]))
        assert todo is not None, f"unknown command: {shlex.join(words)}"
        await todo(self, peer, values, options)

    # -- commands ----------------------------------------------------------------------------------------------------

    async def stream_add(self, peer: RawPeer, values: list[str], options: dict[str, list[str]]) -> None:
        """`nats stream add NAME --subjects S [--retention work] --defaults`, or with `--config FILE`."""
        if "config" in options:
            await peer.create_stream(**json.loads((ROOT / options["config"][0]).read_text("utf-8")))
            return
        assert "defaults" in options, "it would ask"
        retention = {"work": "workqueue"}.get(options.get("retention", ["limits"])[0], "limits")
        subjects = [subject for each in options["subjects"] for subject in each.split(",")]
        await peer.create_stream(name=values[2], subjects=subjects, retention=retention)

    async def consumer_add(self, peer: RawPeer, values: list[str], options: dict[str, list[str]]) -> None:
        """`nats consumer add STREAM NAME --pull --defaults`."""
        assert {"pull", "defaults"} <= options.keys(), "it would ask"
        config: dict[str, Any] = {"durable_name": values[3], "ack_policy": "explicit"}
        if "max-deliver" in options:
            config["max_deliver"] = int(options["max-deliver"][0])
        if "wait" in options:
            config["ack_wait"] = int(options["wait"][0].removesuffix("s")) * 10**9
        body = {"stream_name": values[2], "config": config}
        answer = await peer.api(f"CONSUMER.DURABLE.CREATE.{values[2]}.{values[3]}", body)
        assert "error" not in answer, answer

    async def kv_add(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats kv add BUCKET`."""
        name = values[2]
        await peer.create_stream(
            name=f"KV_{name}", subjects=[f"$KV.{name}.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True
        )

    async def kv_put(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats kv put BUCKET KEY VALUE`."""
        assert "error" not in await peer.store(f"$KV.{values[2]}.{values[3]}".encode(), values[4].encode())

    async def kv_watch(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats kv watch BUCKET`: something has to be seen there."""
        self.subscribed.append((values[2], await peer.collect(f"$KV.{values[2]}.>")))

    async def object_add(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats object add STORE`."""
        name = values[2]
        await peer.create_stream(
            name=f"OBJ_{name}", subjects=[f"$O.{name}.C.>", f"$O.{name}.M.>"], allow_rollup_hdrs=True, discard="new"
        )

    async def object_put(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats object put STORE FILE`, what a rule gets of it: a chunk, and the meta data."""
        name = base64.urlsafe_b64encode(values[3].encode()).decode()
        assert "error" not in await peer.store(f"$O.{values[2]}.C.id".encode(), b"content")
        assert "error" not in await peer.store(f"$O.{values[2]}.M.{name}".encode(), b"{}")

    async def pub(self, peer: RawPeer, values: list[str], options: dict[str, list[str]]) -> None:
        """`nats pub SUBJECT BODY`: stored, if a stream has the subject."""
        fields = "".join(f"{each}\r\n" for each in options.get("H", ()))
        block = f"NATS/1.0\r\n{fields}\r\n".encode() if fields else b""
        body = values[2].encode() if len(values) > 2 else b""
        if (await peer.api("STREAM.NAMES", {"subject": values[1]})).get("streams"):
            assert "error" not in await peer.store(values[1].encode(), body, block)
        else:
            peer.publish(values[1].encode(), body, block)

    async def req(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats req SUBJECT BODY`: answered by a stream."""
        answer = await peer.store(values[1].encode(), values[2].encode())
        assert "seq" in answer, answer

    async def sub(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats sub SUBJECT`: something has to arrive there."""
        self.subscribed.append((values[1], await peer.collect(values[1])))

    async def stream_view(self, peer: RawPeer, values: list[str], _: dict[str, list[str]]) -> None:
        """`nats stream view NAME`, or `subjects`: something has to be in it."""
        self.viewed.append((peer, values[2]))

    async def consumer_next(self, peer: RawPeer, values: list[str], options: dict[str, list[str]]) -> None:
        """`nats consumer next STREAM NAME --no-ack`: until the message has been given up."""
        assert "no-ack" in options
        given_up = await peer.collect(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{values[2]}.{values[3]}")
        inbox = peer.client.new_inbox()
        await peer.collect(inbox)  # servers forget the requests of those who do not listen
        next_one = f"$JS.API.CONSUMER.MSG.NEXT.{values[2]}.{values[3]}".encode()
        for _ in range(3):
            peer.publish(next_one, b'{"batch":1,"expires":30000000000}', b"", inbox.encode())
        await given_up.count(1)


def _taken_apart(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options with their values, and the other words."""
    alone = {"--defaults", "--pull", "--no-ack"}
    options: dict[str, list[str]] = {}
    values: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in alone:
            options[word.lstrip("-")] = []
        elif word.startswith("-"):
            options.setdefault(word.lstrip("-"), []).append(next(rest))
        else:
            values.append(word)
    return options, values


_Todo = Callable[[Tried, RawPeer, list[str], dict[str, list[str]]], Awaitable[None]]
_COMMANDS: dict[tuple[str, ...], _Todo] = {
    ("stream", "add"): Tried.stream_add,
    ("stream", "view"): Tried.stream_view,
    ("stream", "subjects"): Tried.stream_view,
    ("consumer", "add"): Tried.consumer_add,
    ("consumer", "next"): Tried.consumer_next,
    ("kv", "add"): Tried.kv_add,
    ("kv", "put"): Tried.kv_put,
    ("kv", "watch"): Tried.kv_watch,
    ("object", "add"): Tried.object_add,
    ("object", "put"): Tried.object_put,
    ("pub",): Tried.pub,
    ("req",): Tried.req,
    ("sub",): Tried.sub,
}
