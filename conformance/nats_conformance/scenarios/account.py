"""One connection and the streams that it can reach, in the words of a scenario: texts in, texts and JSON out."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nats_conformance.catalogue.case import Json, Message
from nats_conformance.errors import SubjectError
from nats_conformance.observation import Stored
from nats_conformance.raw_client import Collected, RawClient
from nats_conformance.scenarios.waiting import first_that
from nats_conformance.stage import Stage

REPUBLISH: Mapping[str, Json] = {"src": "in.*", "dest": "out.$1"}
"""The republish rule of most scenarios."""


def message(subject: str, payload: str = "", headers: Sequence[str] = ()) -> Message:
    """Return a message with these texts; header lines have no line ends."""
    block = b"".join([b"NATS/1.0\r\n", *(f"{line}\r\n".encode() for line in headers), b"\r\n"]) if headers else b""
    return Message(subject.encode(), block, payload.encode())


class Account:
    """Streams and messages over one connection.

    A refused request raises SubjectError, unless a method's documentation differs.
    """

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self._stage = Stage(client)

    async def create(self, name: str, **config: Json) -> dict[str, Any]:
        """Send STREAM.CREATE, again if remains of a deleted stream are in the way, and return the configuration."""
        answer = await self._stage.answer("CREATE", name, {"name": name, **config}, is_new=True)
        if "error" in answer:
            raise SubjectError(f"STREAM.CREATE.{name}: {answer['error'].get('description')}")
        created: dict[str, Any] = answer["config"]
        return created

    async def update(self, name: str, **changes: Json) -> dict[str, Any]:
        """Send STREAM.UPDATE with changed members (None removes one), and return the configuration in the answer."""
        config = {**(await self.info(name))["config"], **changes}
        config = {member: value for member, value in config.items() if value is not None}
        answer = await self.request(f"STREAM.UPDATE.{name}", config)
        updated: dict[str, Any] = answer["config"]
        return updated

    async def request(self, subject: str, body: Json = None) -> dict[str, Any]:
        """Return a JetStream API request and its answer."""
        answer = await self.client.api(subject, body)
        if "error" in answer:
            raise SubjectError(f"{subject}: {answer['error'].get('description')}")
        return answer

    async def consumer(self, stream: str, **config: Json) -> dict[str, Any]:
        """Create the durable consumer D, and return the answer."""
        body = {"stream_name": stream, "config": {"durable_name": "D", **config}}
        return await self.request(f"CONSUMER.DURABLE.CREATE.{stream}.D", body)

    async def refusal(self, subject: str, body: Json = None) -> int | None:
        """Return the `err_code` of the answer to a request; None if it is not refused."""
        code: int | None = (await self.client.api(subject, body)).get("error", {}).get("err_code")
        return code

    async def info(self, name: str, body: Json = None) -> dict[str, Any]:
        """STREAM.INFO."""
        return await self.request(f"STREAM.INFO.{name}", body)

    async def state(self, name: str) -> dict[str, Any]:
        """Return the stream's state, as in STREAM.INFO."""
        state: dict[str, Any] = (await self.info(name))["state"]
        return state

    async def publish(self, subject: str, payload: str = "", headers: Sequence[str] = ()) -> dict[str, Any]:
        """Publish, wait for the stream's answer, and return it as JSON, even if it is an error.

        Raises:
            SubjectError: no stream takes the subject, or the server ended.
        """
        found = await self.client.ask(message(subject, payload, headers))
        if found is None:
            raise SubjectError(f"no stream takes {subject!r}")
        # A message of an incomplete batch is acknowledged with an empty answer.
        answer: dict[str, Any] = json.loads(found.message.payload or b"{}")
        return answer

    async def publish_all(self, subject: str, payloads: Iterable[str], headers: Sequence[str] = ()) -> None:
        """Publish one message for each payload, each stored before the next one is sent."""
        for payload in payloads:
            answer = await self.publish(subject, payload, headers)
            if "error" in answer:
                raise SubjectError(f"{subject}: {answer['error'].get('description')}")

    async def republished(self, *payloads: str) -> Collected:
        """Publish messages on `in.a`, and return what is republished below `out`."""
        received = await self.subscribe("out.>")
        await self.publish_all("in.a", payloads)
        await self.client.flush()
        return received

    def send(self, subject: str, payload: str = "", headers: Sequence[str] = ()) -> None:
        """Publish, and wait for nothing."""
        self.client.publish(message(subject, payload, headers))

    async def subscribe(self, subject: str) -> Collected:
        """Keep everything that arrives on a subject from now on."""
        return await self.client.subscribe(subject.encode())

    async def stored(self, name: str) -> tuple[Stored, ...]:
        """Return the messages in a stream."""
        return await self._stage.stored(name)

    async def holding(self, name: str, count: int) -> tuple[Stored, ...]:
        """Return the messages in a stream, once it has at least `count` of them."""
        await self._with_state(name, lambda state: state["messages"] >= count, f"message {count}")
        return await self.stored(name)

    async def emptied(self, name: str) -> None:
        """Wait until a stream is empty."""
        await self._with_state(name, lambda state: state["messages"] == 0, "the end of the messages")

    async def ends_with(self, name: str, payload: str) -> bool:
        """Return whether the last message of a stream has this payload."""
        state = await self.state(name)
        answer = await self.client.api(f"STREAM.MSG.GET.{name}", {"seq": state["last_seq"]})
        return b64decode(answer.get("message", {}).get("data", "")) == payload.encode()

    async def ending_with(self, name: str, payload: str) -> tuple[Stored, ...]:
        """Return the messages in a stream, once its last message has this payload."""

        async def last() -> bool | None:
            return await self.ends_with(name, payload) or None

        await first_that(last, f"{payload!r} at the end of stream {name!r}")
        return await self.stored(name)

    async def copied(self, name: str, payload: str) -> tuple[Stored, ...]:
        """Publish a message on `in.a`, and return the messages in a stream once it ends with a copy of it."""
        await self.publish_all("in.a", [payload])
        return await self.ending_with(name, payload)

    async def reached(self, name: str, sequence: int) -> dict[str, Any]:
        """Return the state of a stream as soon as its last sequence is this one or a later one."""
        return await self._with_state(name, lambda state: state["last_seq"] >= sequence, f"sequence {sequence}")

    async def _with_state(self, name: str, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        async def found() -> dict[str, Any] | None:
            state = await self.state(name)
            return state if holds(state) else None

        return await first_that(found, f"{what} of stream {name!r}")

    async def connected_to_source(self, name: str) -> None:
        """Wait until every source of a stream was seen, and none is ahead of it."""

        async def caught_up() -> bool | None:
            info = await self.info(name)
            sources = [*(info.get("sources") or ()), *([info["mirror"]] if info.get("mirror") else ())]
            return all(not each.get("lag") and each.get("active", -1) != -1 for each in sources) or None

        await first_that(caught_up, f"the sources of stream {name!r}")
