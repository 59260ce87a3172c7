"""What a backfill is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.bridge.replication import CHECKED_COPIES

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A wish, as the command line says it.

    Attributes:
        rule: the rule's name.
        sources: names of streams (buckets, for `kv_sources`) of the rule to copy from; none for all.
        capture: where a capture of the history is; None for the live stream.
        to_parquet: where to write files instead of publishing; None to publish.
        overwrite: replace what `to_parquet` holds.
        first: the first sequence wanted; None for what the rule says.
        last: the last sequence wanted; None for the stream's, or the capture's, at the beginning of the job.
        parallel: how many tasks write; order is kept per destination subject only if there are several.
        in_order: with several tasks, how many messages at the end are left to one.
        dry_run: only count.
        top: how many destination subjects a dry run names.
        patience: seconds for which the target may be away or full before the job gives up.
    """

    rule: str
    sources: tuple[str, ...] = ()
    capture: str | None = None
    to_parquet: str | None = None
    overwrite: bool = False
    first: int | None = None
    last: int | None = None
    parallel: int = 1
    in_order: int = CHECKED_COPIES
    dry_run: bool = False
    top: int = 20
    patience: float = 60.0

    @property
    def publishes(self) -> bool:
        """Whether something is written to the target."""
        return not self.dry_run and self.to_parquet is None
