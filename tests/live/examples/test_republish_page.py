"""docs/republish.md: every example does what the page says, on a real server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.marked_yaml import compose
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.raw_messages import Collected, OpenPeer, RawPeer
from tests.live.sidecars import running

PAGE = (Path(__file__).parents[3] / "docs" / "republish.md").read_text("utf-8")
STREAMS: tuple[dict[str, Any], ...] = (
    {"name": "ORDERS", "subjects": ["orders.>"]},
    {"name": "JOBS", "subjects": ["jobs.>"], "retention": "workqueue"},
    {"name": "KV_SETTINGS", "subjects": ["$KV.SETTINGS.>"], "max_msgs_per_subject": 1, "allow_rollup_hdrs": True},
)
WORKERS = {
    "stream_name": "JOBS",
    "config": {"name": "workers", "durable_name": "workers", "ack_policy": "explicit"},
}
_PIECE = re.compile(
    r"^## (?P<heading>[^\n]+)\n|^```yaml\n(?P<rules>.*?)^```\n"
    r"|^\| stored(?P<before> before the start)? \| arrives \|\n\|---\|---\|\n(?P<rows>(?:\|[^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(slots=True)
class Example:
    """A configuration of the page, and what it does."""

    heading: str
    rules: str
    before: list[tuple[str, list[str]]] = field(default_factory=list)
    after: list[tuple[str, list[str]]] = field(default_factory=list)


def _examples() -> Iterator[Example]:
    heading, example = "The beginning", None
    for piece in _PIECE.finditer(PAGE):
        if piece["heading"]:
            heading = piece["heading"]
        elif piece["rules"]:
            example = Example(heading, piece["rules"])
            yield example
        else:
            assert example is not None
            rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in piece["rows"].splitlines()]
            reported = [(stored, re.findall(r"`([^`]+)`", arrives)) for stored, arrives in rows]
            (example.before if piece["before"] else example.after).extend(reported)


EXAMPLES = list(_examples())


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{at}-{one.heading}" for at, one in enumerate(EXAMPLES)])
async def test_an_example(example: Example, native_server: Callable[..., NativeServer], raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as here, native_server("2.15.3") as there:
        document: Any = compose(example.rules).value
        servers = {"default": here.url, "east": here.url, "west": there.url}
        named = document.get("connections", {"default": {}})
        document |= {"connections": {name: {"servers": [servers[name]]} for name in named}, "http": {"listen": ""}}
        settings = Settings.model_validate(document)
        source = await raw_peer(here.url)
        for stream in STREAMS:
            await source.create_stream(**stream)
        await source.api("CONSUMER.CREATE.JOBS.workers", WORKERS)
        collected = await _listening(await raw_peer((there if "west" in named else here).url))
        expected = [subject for _, subjects in example.before + example.after for subject in subjects]
        await _store(source, example.before)
        async with running(settings):
            await _store(source, example.after)
            await collected.count(len(expected))
        arrived = {message[0].decode(): message for message in collected.messages}
        assert sorted(arrived) == sorted(expected)
        headers_only = any(rule.republish.headers_only for rule in settings.rules if rule.kind == "republish")
        for message in arrived.values():
            assert b"Nats-Last-Sequence: " in message[2]
            assert (b"Nats-Msg-Size: 7\r\n" in message[2], message[3]) == (
                headers_only,
                b"" if headers_only else b"3 pears",
            )


async def _listening(peer: RawPeer) -> Collected:
    """What arrives on any of the page's destinations."""
    tokens = {
        subjects.partition(".")[0] for one in EXAMPLES for _, found in one.before + one.after for subjects in found
    }
    collected = Collected()
    for token in sorted(tokens):
        await peer.client.subscribe_batches(f"{token}.>", collected.add, lambda *_: None)
    await peer.flushed()
    return collected


async def _store(peer: RawPeer, rows: list[tuple[str, list[str]]]) -> None:
    for stored, _ in rows:
        subject, *lines = re.findall(r"`([^`]+)`", stored)
        block = "\r\n".join(["NATS/1.0", *lines, "", ""]) if lines else ""
        assert "seq" in await peer.store(subject.encode(), b"3 pears", block.encode())


def test_every_example_shows_what_arrives() -> None:
    assert len(EXAMPLES) >= 5
    assert all(example.before or example.after for example in EXAMPLES)
