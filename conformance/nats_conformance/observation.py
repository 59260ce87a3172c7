"""The observation of a played case: plain values, and their JSON form with every byte kept."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from nats_conformance.catalogue.case import ExpectedRefusal, Json, Message


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a create or update: the configuration as it came back, or the refusal."""

    config: Mapping[str, Json] | None = None
    refusal: ExpectedRefusal | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in a stream, with `time_ns` in nanoseconds since 1970 (0 if unknown)."""

    message: Message
    sequence: int
    time_ns: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation.

    Attributes:
        decisions: the answers to the creates and updates among the steps, in order, without set-up streams.
        received: the messages that subscribers received, in order.
        stored: the messages at the end in each stream with expected contents.
        acks: the answers to the publications; None if no stream answered.
        facts: the results of a scenario.
    """

    decisions: tuple[Decision, ...] = ()
    received: tuple[Message, ...] = ()
    stored: Mapping[str, tuple[Stored, ...]] = field(default_factory=dict)
    acks: tuple[Mapping[str, Json] | None, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return values for `json.dumps`, with subjects, header blocks and payloads in base64."""
        found: dict[str, Any] = {
            "decisions": [_decision(each) for each in self.decisions],
            "received": [_message(each) for each in self.received],
            "stored": {
                stream: [
                    {**_message(each.message), "sequence": each.sequence, "time_ns": each.time_ns} for each in messages
                ]
                for stream, messages in self.stored.items()
            },
            "acks": list(self.acks),
            "facts": self.facts,
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the observation from the result of `as_json`.

        Raises:
            KeyError, TypeError, ValueError: it did not.
        """
        return cls(
            decisions=tuple(_decided(each) for each in value.get("decisions", ())),
            received=tuple(_sent(each) for each in value.get("received", ())),
            stored={
                stream: tuple(Stored(_sent(each), int(each["sequence"]), int(each["time_ns"])) for each in messages)
                for stream, messages in value.get("stored", {}).items()
            },
            acks=tuple(value.get("acks", ())),
            facts=dict(value.get("facts", {})),
        )


def _decision(decision: Decision) -> dict[str, Any]:
    return {"config": decision.config} if decision.refusal is None else {"refused": asdict(decision.refusal)}


def _decided(value: Mapping[str, Any]) -> Decision:
    refusal = ExpectedRefusal(**value["refused"]) if "refused" in value else None
    return Decision(None if refusal else value["config"], refusal)


def _message(message: Message) -> dict[str, str]:
    parts = {"subject": message.subject, "headers": message.header_block, "payload": message.payload}
    return {name: b64encode(raw).decode() for name, raw in parts.items()}


def _sent(value: Mapping[str, Any]) -> Message:
    return Message(*(b64decode(value[name], validate=True) for name in ("subject", "headers", "payload")))
