"""Engines that are wrong on purpose, which a differential run must find."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats_conformance.catalogue.case import ExpectedRefusal, Message
from nats_conformance.observation import Decision, Stored
from nats_transforms.republish import Republish
from tests.differential import Engine, Kind
from tests.differential.trial import Trial


class OneShareMore(Engine):
    """partition(n) with n + 1 shares."""

    def republish_of(self, config: Mapping[str, Any]) -> Republish | None:
        rule = config.get("republish")
        if rule is None:
            return None
        wider = re.sub(
            r"(\{\{partition\()([1-9]\d?)(?=,)", lambda found: f"{found[1]}{int(found[2]) + 1}", rule["dest"]
        )
        return super().republish_of({**config, "republish": {**rule, "dest": wider}})


class DropsDuplicates(Engine):
    """A header line that is there twice comes out once."""

    def republished(self, config: Mapping[str, Any], stored: Stored, last_sequence: int) -> Message | None:
        made = super().republished(config, stored, last_sequence)
        if made is None:
            return None
        lines = made.header_block.split(b"\r\n")[:-2]
        return Message(made.subject, b"\r\n".join([*dict.fromkeys(lines), b"", b""]), made.payload)


class CountsFromZero(Engine):
    """The last sequence is one too low, unless there is none."""

    def republished(self, config: Mapping[str, Any], stored: Stored, last_sequence: int) -> Message | None:
        return super().republished(config, stored, max(last_sequence - 1, 0))


class StoresEmptyTokens(Engine):
    """An ingress transform that takes the last token away where there are more than three."""

    def ingressed(self, config: Mapping[str, Any], subject: bytes) -> bytes:
        return b".".join(super().ingressed(config, subject).split(b".")[:3])


class ForgetsRecords(Engine):
    """A copy without its source record."""

    def copied(self, entry: Mapping[str, Any], stored: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        made = super().copied(entry, stored, identity, mirrors=mirrors)
        return made and Message(made.subject, stored.message.header_block, made.payload)


class OtherWords(Engine):
    """A refusal of max_age in other words."""

    def decide(self, trial: Trial) -> Decision:
        decision = super().decide(trial)
        refusal = decision.refusal
        if refusal is None or "max age" not in (refusal.description or ""):
            return decision
        return Decision(refusal=ExpectedRefusal(refusal.code, refusal.err_code, "that age is too long"))


class OneTooMany(Engine):
    """random(n) that also gives n."""

    def republish_of(self, config: Mapping[str, Any]) -> Republish | None:
        rule = config["republish"]
        wider = re.sub(r"random\((\d+)\)", lambda found: f"random({int(found[1]) + 1})", rule["dest"])
        return super().republish_of({**config, "republish": {**rule, "dest": wider}})


@dataclass(frozen=True, slots=True)
class Wrong:
    """How a run finds a wrong engine.

    Attributes:
        kind: what must be compared.
        trial: the first one of seed 1 that shows it on 2.10.27.
        messages: of the smallest trial that shows it.
        where: the place of the difference, or a part of it.
    """

    engine: type[Engine]
    kind: Kind
    trial: int
    messages: int
    where: str


WRONG = [
    Wrong(DropsDuplicates, Kind.REPUBLISH, 2, 1, "header_block"),
    Wrong(CountsFromZero, Kind.REPUBLISH, 1, 2, "header_block"),
    Wrong(StoresEmptyTokens, Kind.INGRESS, 0, 1, "subject"),
    Wrong(ForgetsRecords, Kind.SOURCE, 8, 1, "header_block"),
    Wrong(OtherWords, Kind.CREATE, 212, 0, "decision"),
]
