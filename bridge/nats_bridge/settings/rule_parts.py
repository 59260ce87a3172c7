"""Parts of rules: the server's own objects under their native names, and the bridge's additions to a source."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StrictBool

from nats_bridge.settings.base import (
    BucketName,
    Flag,
    HeaderName,
    Hint,
    Part,
    StreamName,
    Subject,
    kept_subject,
)
from nats_bridge.settings.rule_fields import StartSequence, StartTime
from nats_transforms.selection import HeaderCondition

EXCLUDE: Final = "subjects to leave out, before any transform"
WHERE: Final = "only messages with this header"
"""The descriptions of `exclude` and `where`."""

ENTRY_START: Final = "set opt_start_seq or opt_start_time in each entry"
FROM_BEGINNING: Final = "a bucket is always copied from its beginning; remove it"
"""The hint for a start that a rule or an entry cannot have."""
_BY_KEY: Final = "select keys with key_transforms; without dest, keys do not change"


class RepublishObject(Part):
    """The server's `republish` object."""

    src: Subject = Field(default=">", description="subjects to republish, wildcards allowed")
    dest: Annotated[str, Hint("the subject to republish to, with $1 or {{functions}}")] = Field(
        description="destination, with $1 or {{functions}}"
    )
    headers_only: StrictBool = Field(default=False, description="send the header Nats-Msg-Size instead of the payload")

    def native(self) -> dict[str, Any]:
        """Return the object as the server writes it, for a stream's configuration or for the engine."""
        return {"src": self.src, "dest": self.dest, "headers_only": self.headers_only}


class HeaderEquals(Part):
    """A condition on a header."""

    header: HeaderName = Field(description="name of the header, case-sensitive")
    equals: str = Field(description="the header's last value, without surrounding white space")

    @property
    def condition(self) -> HeaderCondition:
        """The condition in the engine's form."""
        return HeaderCondition(self.header.encode(), self.equals.strip(" \t").encode())


class SubjectTransform(Part):
    """The server's subject transform."""

    src: Subject = Field(default="", description="subjects to transform; empty: all")
    dest: str = Field(default="", description="new subject, with $1 or {{functions}}; empty: unchanged")

    def native(self) -> dict[str, Any]:
        """Return the object as the server writes it."""
        return {"src": self.src, "dest": self.dest}


class External(Part):
    """The native address of a stream in another account or domain."""

    api: Annotated[str, Hint("the prefix of the JetStream API there, such as $JS.west.API")] = Field(
        min_length=1, description="prefix of the JetStream API there, such as $JS.west.API"
    )
    deliver: str = Field(default="", description="prefix of the delivery subjects there")

    def native(self) -> dict[str, Any]:
        """Return the object as the server writes it."""
        return {"api": self.api, "deliver": self.deliver} if self.deliver else {"api": self.api}


class Source(Part):
    """A source as in the server's `sources` or `mirror`, with additional keys."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "filter_subjects": 'write subject_transforms: [{src: "a.>"}, {src: "b.>"}]; without dest, subjects do not'
        " change",
        "consumer": "the rule creates its own consumer; remove it, and select messages in this entry",
        "start": ENTRY_START,
    }

    name: Annotated[StreamName, Hint("the name of the stream that is copied from")] = Field(
        description="stream to copy"
    )
    filter_subject: Subject = Field(default="", description="only these subjects")
    subject_transforms: tuple[SubjectTransform, ...] = Field(
        default=(), description="subjects to select and transform; the first match counts"
    )
    opt_start_seq: StartSequence | None = Field(
        default=None, description="first sequence to copy, if nothing was copied yet"
    )
    opt_start_time: StartTime | None = Field(
        default=None, description="earliest time of messages to copy, if nothing was copied yet"
    )
    external: External | None = Field(
        default=None, description="native address of the stream, which the rule writes into source records"
    )
    exclude: tuple[Subject, ...] = Field(default=(), description=EXCLUDE)
    where: HeaderEquals | None = Field(default=None, description=WHERE)
    acknowledge: Flag = Field(
        default=False,
        description="for a work-queue or interest stream: acknowledge each message once its copy is stored",
    )
    rename_objects: Flag = Field(
        default=False,
        description="for an object store: name the target's bucket in the metadata",
    )
    connection: str = Field(default="default", alias="from", description="connection of the stream")

    def native(self) -> dict[str, Any]:
        """Return the object as the server writes it, for a stream's configuration or for the engine."""
        entry: dict[str, Any] = {"name": self.name}
        if self.opt_start_seq is not None:
            entry["opt_start_seq"] = self.opt_start_seq
        if self.opt_start_time is not None:
            entry["opt_start_time"] = self.opt_start_time
        if self.filter_subject:
            entry["filter_subject"] = self.filter_subject
        if self.subject_transforms:
            entry["subject_transforms"] = [transform.native() for transform in self.subject_transforms]
        if self.external is not None:
            entry["external"] = self.external.native()
        return entry


class KvSource(Part):
    """A bucket that is copied from."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "filter_subject": _BY_KEY,
        "filter_subjects": _BY_KEY,
        "opt_start_seq": FROM_BEGINNING,
        "opt_start_time": FROM_BEGINNING,
    }

    bucket: Annotated[BucketName, Hint("the name of the bucket that is copied from")] = Field(
        description="bucket to copy"
    )
    key_transforms: tuple[SubjectTransform, ...] = Field(
        default=(), description="keys to select and transform; the first match counts"
    )
    exclude: tuple[Subject, ...] = Field(default=(), description="keys to leave out, before any transform")
    external: External | None = Field(default=None, description="native address of the bucket's stream")
    connection: str = Field(default="default", alias="from", description="connection of the bucket")

    def entry(self, bucket: str) -> Source:
        """Return the bucket as an entry of the `sources` of another bucket's stream."""
        keys = self.key_transforms or (SubjectTransform(src=">", dest=">"),)
        return Source.model_validate(
            {
                "name": f"KV_{self.bucket}",
                "subject_transforms": [
                    {
                        "src": f"$KV.{self.bucket}.{key.src or '>'}",
                        "dest": f"$KV.{bucket}.{key.dest or kept_subject(key.src or '>')}",
                    }
                    for key in keys
                ],
                "exclude": [f"$KV.{self.bucket}.{key}" for key in self.exclude],
                "external": self.external,
                "from": self.connection,
            }
        )
