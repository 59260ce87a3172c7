"""The stage for a case: one connection to a real server, in an account without other clients.

Nothing here waits for a fixed time to be sure that no more messages come. A server republishes before it answers the
publisher, so everything arrives before a PONG after the last answer. A copying stream is awaited until it has the
expected messages, reports no lag, and stays the same. Messages in the source before the target was created are in its
lag. A case about a message that is *not* copied has a later one that is.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Delete,
    Drop,
    Expectation,
    ExpectedRefusal,
    Json,
    Message,
    Publish,
    Purge,
    Settle,
    Step,
    Update,
)
from nats_conformance.errors import SubjectError
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.raw_client import LIMIT, Collected, RawClient
from nats_conformance.relocation import HERE, Relocation
from nats_conformance.subject import CannotPlay
from nats_transforms.subject import matches

_SETTLE_LIMIT = 60.0
"""Seconds after which a copying stream is observed even without the expected messages."""
_LOOK = 0.01
_READ = 1.0
"""Seconds without a message after which a reader asks whether more will come."""
_NEVER = -1
_NO_TOKEN = frozenset(" .*>\t\r\n")
_NO_ROOM = frozenset({10002, 10026, 10027, 10028, 10047, 10113, 10122})
"""Error numbers of an account's limits: streams, consumers, memory, storage, `max_bytes`."""
_reads = count()
_STORE_IS_BUSY = "error creating store for stream"
"""A server's error while the folder of a just deleted stream of the same name still exists."""


class Stage:
    """Plays cases on one connection, one after the other.

    Args:
        client: a connection that only this stage uses.
        relocation: the names and subjects on a server with other users.
    """

    def __init__(self, client: RawClient, relocation: Relocation = HERE) -> None:
        self.client = client
        self._moved = relocation
        self._created: list[str] = []
        self._listening: tuple[bytes, ...] = ()
        self._is_silent = False

    async def play(self, case: Case, expectation: Expectation) -> Observation:
        """Run a case, and delete everything that it created.

        `expectation` only decides how much to wait for.

        Raises:
            SubjectError: the set-up was refused, or the server does not answer. CannotPlay: the account belongs to
                another user and has no room for the case.
        """
        self.prepare(case.listen)
        listening = [await self.client.subscribe(self._moved.subject(subject)) for subject in case.listen]
        try:
            for config in case.streams:
                await self.set_up(config)
            decisions: list[Decision] = []
            acks: list[Mapping[str, Json] | None] = []
            for step in case.steps:
                await self.carry_out(step, decisions, acks)
            stored = {}
            for stream, messages in (expectation.stored or {}).items():
                await self.settle(stream, len(messages), max((each.sequence or 0 for each in messages), default=0))
                await self.until_removed(stream, len(messages))
                stored[stream] = await self.stored(stream)
            times = expectation.received is not None and not stored
            for stream in self._names_of(case) if times else ():
                stored[stream] = await self.stored(stream)
            await self._wait_for_messages(listening, len(expectation.received or ()) if case.entries else 0)
            received = tuple(self._moved.message_back(each) for collected in listening for each in collected.messages)
            return Observation(tuple(decisions), received, stored, tuple(acks))
        finally:
            for collected in listening:
                self.client.unsubscribe(collected)
            await self.clean_up()

    def prepare(self, listen: tuple[bytes, ...] = ()) -> None:
        """Forget the previous case. `listen` are the subjects to subscribe to."""
        self._created = []
        self._listening = listen
        self._is_silent = False

    async def _wait_for_messages(self, listening: list[Collected], messages: int) -> None:
        """Wait until this many messages were received and nothing is in flight.

        Messages that a copying stream republishes are followed by no answer to a publisher.
        """
        clock = asyncio.get_running_loop().time
        limit = clock() + _SETTLE_LIMIT
        await self.client.flush()
        while sum(len(collected.deliveries) for collected in listening) < messages and clock() < limit:
            await asyncio.sleep(_LOOK)
            await self.client.flush()

    async def set_up(self, config: Mapping[str, Json]) -> None:
        """Create a stream. Raise SubjectError if the server refuses it."""
        decision = await self._decide("CREATE", config)
        if decision.refusal is not None:
            raise SubjectError(f"the set-up stream {config.get('name')!r} was refused: {decision.refusal.description}")

    async def carry_out(self, step: Step, decisions: list[Decision], acks: list[Mapping[str, Json] | None]) -> None:
        """Run one step, and append its result to the decisions or the answers."""
        match step:
            case Create(config):
                decisions.append(await self._decide("CREATE", config))
            case Update(config):
                decisions.append(await self._decide("UPDATE", config))
            case Publish(message):
                acks.append(await self._publish(message))
            case Delete(stream, sequence):
                await self._request(f"STREAM.MSG.DELETE.{self._moved.name(stream)}", {"seq": sequence})
            case Purge(stream, request):
                moved = self._moved.config(request)
                if "filter" in moved and isinstance(moved["filter"], str):
                    moved["filter"] = self._moved.subject(moved["filter"].encode()).decode()
                await self._request(f"STREAM.PURGE.{self._moved.name(stream)}", moved)
            case Drop(stream):
                await self._request(f"STREAM.DELETE.{self._moved.name(stream)}")
                self._created.remove(self._moved.name(stream))
            case Settle(stream, messages):
                await self.settle(stream, messages)

    async def _decide(self, verb: str, config: Mapping[str, Json]) -> Decision:
        moved = self._moved.config(config)
        name = moved.get("name")
        # A stream with no_ack does not answer. A case with one expects messages in the stream, and these are awaited.
        self._is_silent |= config.get("no_ack") is True
        # The name in the API subject must be one token, even if the name in the configuration is not.
        addressed = name if isinstance(name, str) and name and not set(name) & _NO_TOKEN else "_"
        is_new = verb == "CREATE" and addressed not in self._created
        if verb == "CREATE" and addressed == name:
            self._created.append(addressed)
        answer = await self.answer(verb, addressed, moved, is_new=is_new)
        error = answer.get("error")
        if error is None:
            return Decision(config=answer["config"])
        return Decision(refusal=ExpectedRefusal(error.get("code"), error.get("err_code"), error.get("description")))

    async def answer(self, verb: str, addressed: str, config: Mapping[str, Json], *, is_new: bool) -> Json:
        """Return the answer to a configuration, with the case's names.

        For a new stream, without remains of a deleted one.
        """
        clock = asyncio.get_running_loop().time
        limit = clock() + _SETTLE_LIMIT
        while True:
            answer = self._moved.json_back(await self.client.api(f"STREAM.{verb}.{addressed}", config))
            self._check_limits(answer)
            if not is_new or not _has_remains(config, answer) or clock() > limit:
                return answer
            await self.client.api(f"STREAM.DELETE.{addressed}")
            await asyncio.sleep(_LOOK)

    async def _publish(self, message: Message) -> Mapping[str, Json] | None:
        moved = replace(message, subject=self._moved.subject(message.subject))
        if self._is_silent:
            self.client.publish(moved)
            await self.client.flush()
            return None
        is_received = any(matches(message.subject, pattern) for pattern in self._listening)
        if (is_received or self._moved != HERE) and not await self._is_taken(moved.subject):
            # A subscriber hides that no stream answers.
            self.client.publish(moved)
            return None
        found = await self.client.ask(moved)
        if found is None:
            return None
        if not found.message.payload:
            return {}  # an empty answer, to a message of an atomic batch that is not the last
        answer = self._moved.json_back(json.loads(found.message.payload))
        self._check_limits(answer)
        error = answer.get("error")
        if error is not None:
            return {"err_code": error.get("err_code"), "description": error.get("description")}
        return {
            name: answer[name] for name in ("stream", "seq", "duplicate", "val", "batch", "count") if name in answer
        }

    def _check_limits(self, answer: Mapping[str, Json]) -> None:
        # In another user's account, limits are not behaviour of the server. In the suite's own, the case sets them.
        error = answer.get("error") or {}
        if self._moved != HERE and error.get("err_code") in _NO_ROOM:
            raise CannotPlay(f"the account has no room for it: {error.get('description')}", is_skip=True)

    async def _is_taken(self, subject: bytes) -> bool:
        answer = await self.client.api("STREAM.NAMES", {"subject": subject.decode("utf-8", "surrogateescape")})
        return bool(answer.get("streams"))

    async def _request(self, subject: str, body: Mapping[str, Json] | None = None) -> dict[str, Any]:
        answer = await self.client.api(subject, body)
        self._check_limits(answer)
        if "error" in answer:
            raise SubjectError(f"{subject}: {answer['error'].get('description')}")
        return answer

    async def settle(self, stream: str, messages: int, last_sequence: int = 0) -> None:
        """Wait until a stream has this many messages and no lag, for a limited time.

        `last_sequence` is the sequence of the last message to wait for, if the stream's limits remove messages before
        it.
        """
        clock = asyncio.get_running_loop().time
        limit = clock() + _SETTLE_LIMIT
        before: Json = None
        while clock() < limit:
            answer = await self.client.api(f"STREAM.INFO.{self._moved.name(stream)}")
            if "error" in answer:
                return
            sources = [*(answer.get("sources") or ()), *([answer["mirror"]] if answer.get("mirror") else ())]
            behind = [each for each in sources if each.get("lag") or each.get("active", _NEVER) == _NEVER]
            state = answer["state"]
            is_there = state["messages"] >= messages and state["last_seq"] >= last_sequence
            if is_there and not behind and (state == before or not sources):
                return
            before = state
            await asyncio.sleep(_LOOK)

    async def until_removed(self, stream: str, messages: int) -> None:
        """Wait until acknowledgements have left only this many messages in the stream, for a limited time."""
        clock = asyncio.get_running_loop().time
        limit = clock() + _SETTLE_LIMIT
        while clock() < limit:
            answer = await self.client.api(f"STREAM.INFO.{self._moved.name(stream)}")
            if "error" in answer or answer["config"].get("retention", "limits") == "limits":
                return
            if answer["state"]["messages"] <= messages:
                return
            await asyncio.sleep(_LOOK)

    async def stored(self, stream: str) -> tuple[Stored, ...]:
        """Return the messages in a stream, as bytes; none if it does not exist.

        Its limits and rollups may remove some of them meanwhile.
        """
        name = self._moved.name(stream)
        info = await self.client.api(f"STREAM.INFO.{name}")
        if "error" in info or not info["state"]["messages"]:
            return ()
        # A consumer outlives its reader for some time, and would still deliver to a reused inbox.
        inbox = f"_INBOX.conform.{next(_reads)}.{name}"
        collected = await self.client.subscribe(inbox.encode())
        try:
            config = {"deliver_subject": inbox, "ack_policy": "none", "mem_storage": True}
            if info["config"].get("retention", "limits") != "limits":
                config = {"deliver_subject": inbox, "ack_policy": "none", "direct": True}
            reader = await self._request(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config})
            wanted = info["state"]["messages"]
            async with asyncio.timeout(LIMIT):
                while not await self.client.arrived(collected, wanted, _READ):
                    seen = await self._request(f"CONSUMER.INFO.{name}.{reader['name']}")
                    if not seen["num_pending"] and seen["delivered"]["consumer_seq"] == len(collected.deliveries):
                        break
        except TimeoutError:
            raise SubjectError(
                f"stream {stream!r}: {len(collected.deliveries)} of {wanted} messages were read"
            ) from None
        finally:
            self.client.unsubscribe(collected)
        found = []
        for each in collected.deliveries:
            fields = each.reply.split(b".")
            found.append(Stored(self._moved.message_back(each.message), int(fields[5]), int(fields[7])))
        return tuple(found)

    def _names_of(self, case: Case) -> list[str]:
        configs = [*case.streams, *(step.config for step in case.steps if isinstance(step, Create))]
        return [config["name"] for config in configs if isinstance(config.get("name"), str) and config["name"]]

    async def clean_up(self) -> None:
        """Delete all created streams."""
        for name in reversed(self._created):
            await self.client.api(f"STREAM.DELETE.{name}")


def _has_remains(config: Mapping[str, Json], answer: Mapping[str, Json]) -> bool:
    """Return whether a stream of this name that was deleted just before is in the way.

    After a stream with file storage was deleted, the next one of its name can be refused (seen on 2.11.17, 2.12.15 and
    2.15.1), or begin with the messages of the deleted one (seen once, on 2.15.1).
    """
    error = answer.get("error")
    if error is not None:
        return bool(error.get("err_code") == 10049 and error.get("description") == _STORE_IS_BUSY)
    copies = config.keys() & {"sources", "mirror", "first_seq"}
    return not copies and bool(answer.get("state", {}).get("last_seq"))
