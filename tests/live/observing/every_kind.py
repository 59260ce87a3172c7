"""One rule of every kind on one server, and traffic for all of them: for tests of what all rules have in common."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from nats_bridge.rules.supervisor import RuleSupervisor
from tests.live.raw_messages import RawPeer
from tests.live.until import until


@dataclass(frozen=True, slots=True)
class EveryKind:
    """Streams, buckets and rules around one source stream."""

    peer: RawPeer
    name: str

    @classmethod
    async def make(cls, peer: RawPeer, name: str) -> Self:
        """Create all that the rules need."""
        await peer.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        for letter in "TMK":
            await peer.create_stream(name=f"{letter}{name}", subjects=[f"{letter}{name}.>"], storage="memory")
        await peer.create_stream(name=f"D{name}", subjects=[f"D{name}.>"], storage="memory")
        for bucket in (f"S{name}", f"C{name}"):
            await peer.create_stream(
                name=f"KV_{bucket}",
                subjects=[f"$KV.{bucket}.>"],
                storage="memory",
                max_msgs_per_subject=1,
                allow_rollup_hdrs=True,
                deny_delete=True,
                discard="new",
            )
        return cls(peer, name)

    @property
    def rules(self) -> list[dict[str, Any]]:
        """One of each kind, named after it; `at-least-once` is a republish rule, too."""
        name = self.name

        def renamed(to: str) -> dict[str, Any]:
            return {"name": name, "subject_transforms": [{"src": f"{name}.>", "dest": f"{to}.>"}]}

        return [
            {"name": "watch", "kind": "watch", "streams": [f"N{name}*"], "interval": 0.5},
            {
                "name": "republish",
                "kind": "republish",
                "stream": name,
                "republish": {"src": f"{name}.>", "dest": f"most{name}.>"},
                "exclude": [f"{name}.skipped"],
            },
            {
                "name": "at-least-once",
                "kind": "republish",
                "stream": name,
                "republish": {"src": f"{name}.>", "dest": f"least{name}.>"},
                "delivery": "at_least_once",
            },
            {"name": "sources", "kind": "sources", "stream": f"T{name}", "sources": [renamed(f"T{name}")]},
            {"name": "mirror", "kind": "mirror", "stream": f"M{name}", "mirror": renamed(f"M{name}")},
            {"name": "kv_sources", "kind": "kv_sources", "bucket": f"C{name}", "sources": [{"bucket": f"S{name}"}]},
            {
                "name": "subject_transform",
                "kind": "subject_transform",
                "stream": f"K{name}",
                "subject_transform": {"src": f"in{name}.>", "dest": f"K{name}.>"},
            },
            {
                "name": "advisories",
                "kind": "advisories",
                "republish": {
                    "src": f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{name}.*",
                    "dest": f"D{name}.{{{{wildcard(1)}}}}",
                },
                "attach_message": True,
            },
        ]

    async def traffic(self, messages: int, block: bytes = b"", payload: bytes = b"payload") -> None:
        """So many messages for every rule, and one advisory; returns when all streams have what they are to have.

        The source gets one more, which one rule excludes.
        """
        peer, name = self.peer, self.name
        await peer.create_stream(name=f"N{name}", storage="memory", mirror={"name": name})
        for number in range(messages):
            await peer.store(f"{name}.s{number % 7}".encode(), payload, block)
            await peer.store(f"$KV.S{name}.k{number}".encode(), payload, block)
            await peer.store(f"in{name}.s{number % 7}".encode(), payload, block)
        await peer.store(f"{name}.skipped".encode(), payload, block)
        await self._terminate_one()
        for stream, wanted in (
            (f"T{name}", messages + 1),
            (f"M{name}", messages + 1),
            (f"K{name}", messages),
            (f"KV_C{name}", messages),
            (f"D{name}", 1),
            (f"N{name}", messages + 1),
        ):
            await self._holds(stream, wanted)

    async def done(self, supervisors: Sequence[RuleSupervisor], messages: int) -> None:
        """Wait until every rule has all of `traffic(messages)` behind it, confirmed by its server.

        What the streams hold says nothing of the rules that republish, nor of what a rule has received.
        """
        wanted = dict.fromkeys((rule["name"] for rule in self.rules), messages + 1)
        wanted |= {"kv_sources": messages, "subject_transform": messages, "advisories": 1}

        def is_done(supervisor: RuleSupervisor) -> bool:
            received = supervisor.counters().get("received", 0)
            metrics = supervisor.metrics
            if supervisor.rule.name == "watch":
                return [copy["condition"] for copy in supervisor.status()["copies"]] == ["complete"]
            return received >= wanted[supervisor.rule.name] and metrics.in_flight() == 0 and metrics.progress_ns > 0

        await until(lambda: all(map(is_done, supervisors)))

    async def _holds(self, stream: str, messages: int) -> None:
        async def there() -> bool:
            return bool((await self.peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] >= messages)

        await until(there)

    async def _terminate_one(self) -> None:
        """Have a consumer give up the first message."""
        peer, name = self.peer, self.name
        config = {"durable_name": "giver", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": config}
        assert "error" not in await peer.api(f"CONSUMER.DURABLE.CREATE.{name}.giver", body)
        inbox = peer.client.new_inbox()
        arrived = await peer.collect(inbox)
        request = json.dumps({"batch": 1, "expires": 60_000_000_000}).encode()
        peer.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.giver".encode(), request, b"", inbox.encode())
        ((_, reply, _, _),) = await arrived.count(1)
        peer.publish(reply, b"+TERM")
        await asyncio.wait_for(peer.client.flushed(), 60)
