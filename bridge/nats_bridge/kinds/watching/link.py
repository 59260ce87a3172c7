"""The mirrors and sources that an account's streams have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nats_bridge.client.jetstream_api import OWN_API, Json
from nats_transforms.source_record import SourceRecord, consumed_name, external_name


@dataclass(frozen=True, slots=True)
class Link:
    """A mirror, or one entry of `sources`.

    Attributes:
        source: the stream to copy.
        is_mirror: whether the target is its mirror.
        api: the prefix of the API with which the target's server reaches it.
        entry: the object of the target's configuration.
        place: its index in `sources`, or `mirror`.
    """

    target: str
    source: str
    is_mirror: bool
    api: str
    entry: Json
    place: str = "mirror"

    @property
    def name(self) -> str:
        """The name in messages."""
        filters = ", ".join(self.filters)
        return f"{self.target} <- {self.source}" + (f" ({filters})" if filters else "")

    @property
    def identity(self) -> tuple[str, str, str, tuple[str, ...], tuple[str, ...], str]:
        """Different for all links of an account."""
        return self.target, self.source, self.api, self.filters, self._destinations, self._consumer

    @property
    def is_external(self) -> bool:
        """Whether the source is in another account or domain."""
        return self.api != OWN_API

    @property
    def filters(self) -> tuple[str, ...]:
        """The copied subjects; empty for all."""
        transforms = self.entry.get("subject_transforms") or ()
        several = tuple(each.get("src") or ">" for each in transforms)
        return several or tuple(filter(None, (self.entry.get("filter_subject"),)))

    def copied(self, record: SourceRecord) -> bool:
        """Return whether a source record is of this link."""
        name = self.source.encode()
        if self.is_external:
            name = external_name(name, self.api.encode())
        if self._consumer:
            name = consumed_name(name, self._consumer.encode())
        destinations = tuple(each.encode() for each in self._destinations)
        return record.is_of(name, tuple(each.encode() for each in self.filters), destinations)

    def reported(self, target: Json) -> Json:
        """Return the target server's report of this link in `STREAM.INFO`: `lag`, `active`, `error`, `seq`."""
        if self.is_mirror:
            return target.get("mirror") or {}
        several: list[Json] = [each for each in target.get("sources") or () if each.get("name") == self.source]
        # Before 2.10 one of a name is all there is.
        own = [each for each in several if _link(self.target, each, is_mirror=False).identity[:5] == self.identity[:5]]
        return (own or several or [{}])[0]

    @property
    def first(self) -> int:
        """The first sequence of the source that the link copies."""
        return int(self.entry.get("opt_start_seq") or 1)

    @property
    def _destinations(self) -> tuple[str, ...]:
        return tuple(each.get("dest") or "" for each in self.entry.get("subject_transforms") or ())

    @property
    def _consumer(self) -> str:
        return (self.entry.get("consumer") or {}).get("name") or ""


def links_of(streams: Iterable[Json]) -> Iterator[Link]:
    """Yield all links of streams, each stream as `STREAM.INFO` gives it."""
    for info in streams:
        config = info["config"]
        if config.get("mirror"):
            yield _link(config["name"], config["mirror"], is_mirror=True)
        for number, entry in enumerate(config.get("sources") or ()):
            yield _link(config["name"], entry, is_mirror=False, place=str(number))


def _link(target: str, entry: Json, *, is_mirror: bool, place: str = "mirror") -> Link:
    api = (entry.get("external") or {}).get("api") or OWN_API
    return Link(target, entry["name"], is_mirror, api, entry, place)
