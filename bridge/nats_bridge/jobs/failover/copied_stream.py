"""Finds which streams of one account are copied to which streams of another, by rules or natively."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.errors import ApiError
from nats_bridge.jobs.failover.account import AccountState
from nats_bridge.kinds.copying.entry_subjects import compiled_entry
from nats_bridge.kinds.copying.model import CopyingRule, MirrorRule
from nats_bridge.kinds.copying.position.entry_streams import SourceIdentity
from nats_bridge.kinds.watching.link import Link, links_of
from nats_bridge.settings import Settings
from nats_transforms.copy_id import entry_key
from nats_transforms.dialect import server_dialect
from nats_transforms.errors import EngineError
from nats_transforms.source_record import SourceRecord
from nats_transforms.sourcing import Sourcing, compile_sourcing

_UNKNOWN = SourceIdentity(b"")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of `sources`, or `mirror`, of a rule or of the target itself.

    Attributes:
        sourcing: the filters and transforms of the entry.
        is_own: whether a source record is of the entry.
        key: the prefix of the copies' message ids; empty if the server copies.
        by: the rule, or the setting of the target.
        identity: the facts that tell copies of the present source from others; known after `identify`.
    """

    sourcing: Sourcing
    is_own: Callable[[SourceRecord], bool]
    key: bytes
    by: str
    identity: SourceIdentity = _UNKNOWN


@dataclass(slots=True)
class CopiedStream:
    """A stream and its copy.

    Attributes:
        source: the stream, as `STREAM.INFO` gives it.
        target: the copy's stream, in the same way.
        entries: the entries that copy from the source to the target.
        others: entries of the target for other sources.
        keeps_sequence: whether copies have the source's sequence numbers.
    """

    source: Json
    target: Json
    entries: list[Entry] = field(default_factory=list)
    others: list[Sourcing] = field(default_factory=list)
    keeps_sequence: bool = False

    @property
    def source_name(self) -> str:
        """The source's name."""
        return str(self.source["config"]["name"])

    @property
    def target_name(self) -> str:
        """The target's name."""
        return str(self.target["config"]["name"])


class CopiedStreams:
    """Finds the copies from one account to another, or within one.

    Args:
        settings: the configuration, for its rules.
        source: the account of the sources.
        source_name: the name of its connection.
        target: the open connection of the targets.
        targets: their account.
    """

    def __init__(
        self, settings: Settings, source: AccountState, source_name: str, target: Connection, targets: AccountState
    ) -> None:
        self._settings = settings
        self._source = source
        self._source_name = source_name
        self._target = target
        self._targets = targets
        self._found: dict[tuple[str, str], CopiedStream] = {}
        self._others: dict[str, list[Sourcing]] = {}

    async def find(self) -> list[CopiedStream]:
        """Return all copied streams, each once, by name."""
        for rule in self._settings.rules:
            if isinstance(rule, CopyingRule) and rule.target_connection == self._target.name:
                self._of_rule(rule)
        for link in links_of(self._targets.streams.values()):
            await self._of_link(link)
        for copied in self._found.values():
            copied.others = self._others.get(copied.target_name, [])
        return [self._found[names] for names in sorted(self._found)]

    def _of_rule(self, rule: CopyingRule) -> None:
        dialect = self._settings.offline_dialect_of(rule)
        target = self._targets.streams.get(rule.target_stream)
        for source in rule.entries if target is not None else ():
            sourcing = compiled_entry(source, dialect, mirrors=isinstance(rule, MirrorRule))
            info = self._source.streams.get(source.name) if source.connection == self._source_name else None
            if info is None or target is None:
                self._others.setdefault(rule.target_stream, []).append(sourcing)
                continue
            key = entry_key(sourcing, str(info["created"]))
            keeps = isinstance(rule, MirrorRule) and rule.keep_sequence
            self._add(info, target, Entry(sourcing, sourcing.is_own, key, f"rule {rule.name}"), keeps=keeps)

    async def _of_link(self, link: Link) -> None:
        try:
            sourcing = compile_sourcing(link.entry, server_dialect(self._target.server_version), mirrors=link.is_mirror)
        except EngineError:
            return  # of a newer server than is known
        info = self._source.streams.get(link.source)
        if info is None or not await self._is_source(link, info):
            self._others.setdefault(link.target, []).append(sourcing)
            return
        entry = Entry(sourcing, link.copied, b"", "its mirror" if link.is_mirror else "its sources")
        self._add(info, self._targets.streams[link.target], entry, keeps=link.is_mirror)

    async def _is_source(self, link: Link, info: Json) -> bool:
        """Return whether a link's stream is the stream of that name in the source's account.

        If neither server can tell, the name decides, unless both accounts are the same.
        """
        same = self._source_name == self._target.name
        if not link.is_external:
            seen = self._targets.streams.get(link.source)
            return not same and seen is None if seen is None else _created(seen) == _created(info)
        try:
            answer = await self._target.api.ask_elsewhere(f"{link.api}.STREAM.INFO.{link.source}", b"")
        except ApiError:
            return not same
        return _created(answer) == _created(info) if "created" in answer else not same

    def _add(self, source: Json, target: Json, entry: Entry, *, keeps: bool) -> None:
        names = str(source["config"]["name"]), str(target["config"]["name"])
        copied = self._found.setdefault(names, CopiedStream(source, target, keeps_sequence=keeps))
        copied.entries.append(entry)


def _created(info: Mapping[str, object]) -> str:
    return str(info["created"])
