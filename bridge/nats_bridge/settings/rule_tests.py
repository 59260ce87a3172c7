"""Tests of rules: a message and the expected result. `nats-bridge check` runs them; a sidecar ignores them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from nats_bridge.settings.base import Part, header_name, refused
from nats_transforms.subject import is_valid_publish
from nats_transforms.timestamp import nanoseconds_of


def _one_subject(value: str) -> str:
    if not is_valid_publish(value.encode()):
        raise refused(f"'{value}' cannot be published to: it must not contain wildcards, empty tokens or white space")
    return value


def _lines(headers: Mapping[str, str | None]) -> Mapping[str, str | None]:
    for name, value in headers.items():
        header_name(name)
        if value and not {"\r", "\n"}.isdisjoint(value):
            raise refused(f"{name}: {value!r}: a header's value must be one line")
    return headers


def _utc(value: str) -> str:
    try:
        nanoseconds_of(value)
    except ValueError:
        raise refused(f"'{value}': must be a time in UTC, like 2026-01-01T00:00:00Z") from None
    return value


_OneSubject = Annotated[str, AfterValidator(_one_subject)]


class GivenMessage(Part):
    """The message that the rule receives."""

    subject: _OneSubject = Field(description="subject")
    headers: Annotated[dict[str, str], AfterValidator(_lines)] = Field(default={}, description="headers, in this order")
    payload: str = Field(default="", description="payload, as text")
    stream: str | None = Field(
        default=None, description="stream that stores the message; absent: every source of the rule is tried"
    )
    sequence: int = Field(default=1, ge=1, description="sequence in the stream")
    last_sequence: int = Field(
        default=0, ge=0, description="sequence of the previous message with this subject; 0: none"
    )
    time: Annotated[str, AfterValidator(_utc)] = Field(
        default="2026-01-01T00:00:00Z", description="time when the message was stored, in UTC"
    )


class ExpectedMessage(Part):
    """A message that the rule should publish or store. Keys that you leave out are not compared."""

    subject: str = Field(description="subject")
    headers: Annotated[dict[str, str | None], AfterValidator(_lines)] = Field(
        default={}, description="expected headers, each with its last value; null: must be absent"
    )
    payload: str | None = Field(default=None, description="payload, as text")


class RuleTest(Part):
    """One message, and the messages that a rule should make from it."""

    misplaced: ClassVar[Mapping[str, str]] = {"stream": "the test uses the stream of 'rule'; remove it"}

    name: str = Field(default="", description="title in the output of check")
    rule: str = Field(description="name of the rule")
    given: GivenMessage = Field(description="message that the rule receives")
    expect: tuple[ExpectedMessage, ...] = Field(description="messages that the rule publishes or stores; []: none")

    @property
    def title(self) -> str:
        """The title in reports."""
        return self.name or f"{self.rule}: {self.given.subject}"
