"""The shape of a case file, and its JSON schema.

All hand-written files are read through these models, which refuse unknown keys; `reading` turns them into cases.
Strings stand for their UTF-8 bytes; `{hex: 666f6f}` stands for other bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from nats_conformance.catalogue.case import Level, TransformPlace

_VERSION = r"[0-9]+\.[0-9]+(\.[0-9]+)?"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Hex(_Strict):
    """Bytes that are no UTF-8."""

    hex: str

    @field_validator("hex")
    @classmethod
    def _whole_bytes(cls, value: str) -> str:
        try:
            bytes.fromhex(value)
        except ValueError:
            raise ValueError("no hexadecimal text of whole bytes, such as 666f6f") from None
        return value


Text: TypeAlias = Annotated[str | Hex, Field(description="a text, or bytes as {hex: …}")]
Config: TypeAlias = dict[str, Any]
VersionText: TypeAlias = Annotated[str, StringConstraints(pattern=f"^{_VERSION}$")]
Versions: TypeAlias = Annotated[
    VersionText | list[VersionText],
    Field(description="the first version, or the first of each minor line that a change was brought to"),
]


class MessageText(_Strict):
    """A message: header lines without the status line, or the whole block."""

    subject: Text
    headers: list[Text] | None = Field(None, description="lines behind NATS/1.0, in order, without CRLF")
    block: Text | None = Field(None, description="the whole header block, CRLFs included")
    payload: Text | None = None
    sequence: int | None = Field(None, description="in the stream; only where messages are expected")

    @model_validator(mode="after")
    def _one_spelling(self) -> MessageText:
        if self.headers is not None and self.block is not None:
            raise ValueError("give headers or block, not both")
        return self


class PurgeText(_Strict):
    """STREAM.PURGE."""

    stream: str
    filter: str | None = None
    seq: int | None = None
    keep: int | None = None


class DeleteText(_Strict):
    """STREAM.MSG.DELETE."""

    stream: str
    sequence: int


class SettleText(_Strict):
    """Wait for a copying stream."""

    stream: str
    messages: int


class StepText(_Strict):
    """One step: exactly one of the members."""

    create: Config | None = None
    update: Config | None = None
    publish: MessageText | list[MessageText] | None = None
    delete: DeleteText | None = None
    purge: PurgeText | None = None
    drop: str | None = None
    settle: SettleText | None = None

    @model_validator(mode="after")
    def _one_step(self) -> StepText:
        if len(self.model_fields_set) != 1:
            raise ValueError("a step is exactly one of create, update, publish, delete, purge, drop, settle")
        return self


class RefusedText(_Strict):
    """A server's error answer."""

    code: int | None = None
    err_code: int | None = None
    description: str | None = None


class ExpectText(_Strict):
    """What must be seen."""

    refused: RefusedText | None = None
    config: Config | None = Field(None, description="members of the returned configuration; null: absent")
    results: dict[str, Text | None] | None = Field(
        None, description="of a transform: each new subject; null: nothing can be received"
    )
    received: list[MessageText] | None = None
    stored: dict[str, list[MessageText]] | None = None
    any_order: list[str] = []
    acks: list[dict[str, Any] | None] | None = None
    facts: dict[str, Any] | None = Field(None, description="of a scenario")


class DifferenceText(_Strict):
    """What a range of versions shows instead."""

    since: Versions | None = None
    until: Versions | None = Field(None, description="first versions that do not show it any more")
    reason: str = Field(min_length=8)
    expect: ExpectText | None = None
    without: Annotated[str, StringConstraints(pattern=r"^[A-Za-z-]+$")] | None = Field(
        None, description="instead of expect: what the case expects, without the header lines of this name"
    )

    @model_validator(mode="after")
    def _bounded(self) -> DifferenceText:
        if self.since is None and self.until is None:
            raise ValueError("a difference needs since or until")
        if (self.expect is None) == (self.without is None):
            raise ValueError("a difference says expect or without, one of them")
        return self


class RangeText(_Strict):
    """A range of versions."""

    since: Versions | None = None
    until: Versions | None = None


class TransformText(_Strict):
    """One transform; `subjects` where the expectation has no results that name them."""

    src: Text
    dest: Text
    place: TransformPlace = TransformPlace.REPUBLISH
    subjects: list[Text] | None = None


class CaseText(_Strict):
    """One case."""

    id: Annotated[str, StringConstraints(pattern=r"^(adr[0-9]{2}|native|diff)(/[a-z0-9-]+){1,4}/[0-9]+$")]
    title: str = Field(min_length=8, max_length=140)
    level: Level
    clause: str | None = Field(None, description="document and section; the file's, where it is not given")
    quote: str = Field("", description="the sentence of the clause that is tested")
    since: Versions | None = Field(None, description="the first version that the case is about")
    until: Versions | None = None
    needs: list[Literal["store", "account"]] = Field(
        [], description="store: what a stream keeps decides; account: cannot be moved to subjects of its own"
    )
    harms: RangeText | None = Field(None, description="versions whose server ends or never comes to rest")
    streams: list[Config] = []
    create: Config | None = Field(None, description="short for one step")
    update: Config | None = Field(None, description="short for one step")
    publish: list[MessageText] | None = Field(None, description="short for steps that come last")
    steps: list[StepText] = []
    transform: TransformText | None = None
    scenario: str | None = None
    listen: list[str] = ["out.>"]
    expect: ExpectText
    differences: list[DifferenceText] = []
    kd: list[Annotated[str, StringConstraints(pattern=r"^kd/[a-z0-9./-]+$")]] = Field(
        [], description="known divergences of the bridge that the case shows"
    )


class CaseFile(_Strict):
    """A file of the catalogue."""

    clause: str
    cases: list[CaseText] = Field(min_length=1)


def fields_at(path: Iterable[str | int]) -> tuple[str, ...]:
    """Return the valid keys of a mapping at this place of a case file; empty if it may have any."""
    model: type[BaseModel] | None = CaseFile
    for part in path:
        if model is not None and part in model.model_fields:
            model = _model_in(model.model_fields[str(part)].annotation)
    return () if model is None else tuple(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each)) is not None), None)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a case file."""
    made = CaseFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "nats-conformance cases", **made}
