"""The two streams of an entry as both stand at one moment: what its position is read from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.position.resume_point import of_this_source
from nats_bridge.kinds.copying.position.source_identity import SourceIdentity, identity_by_copies
from nats_bridge.kinds.copying.position.tail_reader import TargetTail, read_tail
from nats_bridge.kinds.copying.target import Target
from nats_transforms.copy_id import entry_key
from nats_transforms.sourcing import Sourcing


@dataclass(frozen=True)
class EntryStreams:
    """Source and target of an entry.

    Attributes:
        sourcing: the compiled entry.
        source: reads what the source holds for it, headers only.
        source_info: the source's `STREAM.INFO`.
        target_api: the API of the connection that holds the target.
        target_info: the target's `STREAM.INFO`.
        target: the same, as copying needs it.
        last: the target's last sequence, once that is known.
        rule: the rule's name, for the log.
        identity: which copies are of the present source, once that is known.
    """

    sourcing: Sourcing
    source: Replay
    source_info: Json
    target_api: JetStreamApi
    target_info: Json
    target: Target
    last: int = 0
    rule: str = ""
    identity: SourceIdentity | None = None

    @property
    def created(self) -> str:
        """When the source was created, as its server says it."""
        return str(self.source_info["created"])

    @property
    def fresh_key(self) -> bytes:
        """The entry's key, if the target holds no copies of the source yet."""
        return entry_key(self.sourcing, self.created)

    @property
    def key(self) -> bytes:
        """The entry's key with the present source."""
        return self.identity.key if self.identity is not None else self.fresh_key

    async def identified(self, tail: TargetTail) -> EntryStreams:
        """These streams, with the source identity that the newest copies show; errors as for `newest`."""
        return replace(self, identity=await identity_by_copies(self, tail.copies))

    @property
    def source_last(self) -> int:
        """The source's last sequence."""
        return int(self.source_info["state"]["last_seq"])

    async def newest(self, wanted: int, *, whatever_age: bool = False) -> TargetTail:
        """The newest copies of any stream of the source's name; see `read_tail`.

        Raises:
            ApiError: the server cannot be asked.
        """
        return await read_tail(
            self.target_api,
            self.target.name,
            self.last,
            self.sourcing.own_record,
            wanted,
            rule=self.rule,
            whatever_age=whatever_age,
        )

    async def newest_of_present(self, wanted: int, whatever_age: bool) -> TargetTail:
        """Those of them that are copies of the present source; errors as for `newest`."""
        return self.of_present(await self.newest(wanted, whatever_age=whatever_age))

    def of_present(self, tail: TargetTail) -> TargetTail:
        """The copies of the present source, of those that were read."""
        return replace(tail, copies=of_this_source(tail.copies, self.key, self.since_ns))

    @property
    def since_ns(self) -> int:
        """When the target stored the newest copy of an earlier source, in nanoseconds since 1970; 0 for none."""
        return self.identity.since_ns if self.identity is not None else 0
