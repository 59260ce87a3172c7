"""Plays a trial on a real server: one connection, in an account without other clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from nats_conformance.catalogue.case import ExpectedRefusal, Json, Message
from nats_conformance.errors import SubjectError
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.raw_client import Collected, RawClient
from tests.differential.drawing import SOURCE, TARGET
from tests.differential.trial import Trial

Expected: TypeAlias = Callable[[Sequence[Stored]], int]
"""From what the source holds to how many copies of it the target is to be waited for."""

_COPIES_LIMIT = 60.0
"""Seconds until copies that have not come are taken for not coming."""
_TRIES, _PAUSE = 1000, 0.01
_STORE_IS_BUSY = "error creating store for stream"


class Player(Protocol):
    """What plays trials, one after the other."""

    patience: float
    """Seconds until copies that have not come are taken for not coming."""

    async def play(
        self, trial: Trial, listen: Sequence[bytes], expected: Expected, *, with_messages: bool = True
    ) -> Observation:
        """Play a trial; see `Bench.play`."""

    async def flush(self) -> None:
        """Raise SubjectError where no trial can be played any more."""


class Bench:
    """Plays trials on a server.

    Args:
        client: connected; only this bench uses it.
        patience: seconds until copies that have not come are taken for not coming.
    """

    def __init__(self, client: RawClient, patience: float = _COPIES_LIMIT) -> None:
        self.client = client
        self.patience = patience
        self._there: list[str] = []

    async def play(
        self, trial: Trial, listen: Sequence[bytes], expected: Expected, *, with_messages: bool = True
    ) -> Observation:
        """Play a trial, and delete what it created.

        Args:
            listen: subjects to subscribe to before.
            expected: how many copies to wait for.
            with_messages: whether messages are published once the configuration was accepted.

        Raises:
            SubjectError: the server does not answer, or refused a stream that the trial needs.
        """
        self._there = []
        collected = [await self.client.subscribe(subject) for subject in listen]
        try:
            return await self._played(trial, collected, expected, with_messages=with_messages)
        finally:
            for each in collected:
                self.client.unsubscribe(each)
            await asyncio.gather(*(self.client.api(f"STREAM.DELETE.{name}") for name in self._there))

    async def flush(self) -> None:
        """See `Player`."""
        await self.client.flush()

    async def _played(
        self, trial: Trial, collected: list[Collected], expected: Expected, *, with_messages: bool
    ) -> Observation:
        for config in trial.others:
            decision = await self._decide("CREATE", config)
            if decision.refusal is not None:
                raise SubjectError(f"the stream {config['name']} was refused: {decision.refusal.description}")
        stored: dict[str, tuple[Stored, ...]] = {}
        acks: list[Mapping[str, Json] | None] = []
        if trial.copies and trial.messages:
            acks = await self._publish(trial.messages)
            stored[SOURCE] = await self._stored(SOURCE, _kept(acks))
        decisions: list[Decision] = []
        if trial.previous is not None:
            decisions.append(await self._decide("CREATE", trial.previous))
        if not decisions or decisions[0].refusal is None:
            decisions.append(await self._decide("CREATE" if trial.previous is None else "UPDATE", trial.config))
            if decisions[-1].refusal is None and trial.messages and with_messages:
                if trial.copies:
                    stored[TARGET] = await self._stored(TARGET, expected(stored[SOURCE]))
                else:
                    acks = await self._publish(trial.messages)
                    stored[TARGET] = await self._stored(TARGET, _kept(acks))
                await self.client.flush()
        received = tuple(message for each in collected for message in each.messages)
        return Observation(tuple(decisions), received, stored, tuple(acks))

    async def _decide(self, verb: str, config: Mapping[str, Json]) -> Decision:
        name = config.get("name")
        named = name if isinstance(name, str) and name else "_"
        answer = await self.client.api(f"STREAM.{verb}.{named}", config)
        for _ in range(_TRIES):
            # The server may still remove a stream in files: that is no answer to the configuration.
            if answer.get("error", {}).get("description") != _STORE_IS_BUSY:
                break
            await asyncio.sleep(_PAUSE)
            answer = await self.client.api(f"STREAM.{verb}.{named}", config)
        else:
            raise SubjectError(f"{verb} of stream {named}: {_STORE_IS_BUSY}, {_TRIES} times in a row")
        error = answer.get("error")
        if error is not None:
            return Decision(refusal=ExpectedRefusal(error.get("code"), error.get("err_code"), error.get("description")))
        if verb == "CREATE":
            self._there.append(named)
        return Decision(config=_without_own_metadata(answer["config"]))

    async def _publish(self, messages: Sequence[Message]) -> list[Mapping[str, Json] | None]:
        answers = await asyncio.gather(*map(self.client.ask, messages))
        return [None if answer is None else json.loads(answer.message.payload) for answer in answers]

    async def _stored(self, stream: str, number: int) -> tuple[Stored, ...]:
        """Return what a stream holds, once it holds so many messages or a time limit has passed."""
        inbox = f"_INBOX.differential.{stream}"
        collected = await self.client.subscribe(inbox.encode())
        try:
            config = {"deliver_subject": inbox, "ack_policy": "none", "mem_storage": True}
            answer = await self.client.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
            if "error" in answer:
                raise SubjectError(f"stream {stream}: {answer['error'].get('description')}")
            await self.client.arrived(collected, number, self.patience)
            await self.client.flush()
        finally:
            self.client.unsubscribe(collected)
        found = []
        for each in collected.deliveries:
            fields = each.reply.split(b".")
            found.append(Stored(each.message, int(fields[5]), int(fields[7])))
        return tuple(found)


def _kept(acks: Sequence[Mapping[str, Json] | None]) -> int:
    """How many of the acknowledged messages are in the stream."""
    return sum(ack is not None and "error" not in ack and not ack.get("duplicate") for ack in acks)


def _without_own_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """A returned configuration without what servers from 2.11 on write about themselves."""
    own = {key: value for key, value in config.pop("metadata", {}).items() if not key.startswith("_nats.")}
    return config | {"metadata": own} if own else config
