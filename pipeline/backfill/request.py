"""The request for a backfill."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """The request, as the command line gives it.

    Attributes:
        rule: the rule's name.
        sources: names of streams (buckets, for `kv_sources`) of the rule to copy from; none for all.
        capture: where a capture of the history is; None for the live stream.
        to_parquet: where to write files instead of publishing; None to publish.
        overwrite: replace what `to_parquet` holds.
        first: the first sequence wanted; None for what the rule says.
        last: the last sequence wanted; None for the stream's, or the capture's, at the beginning of the job.
        patience: seconds for which the target may be away or full before the job gives up.
    """

    rule: str
    sources: tuple[str, ...] = ()
    capture: str | None = None
    to_parquet: str | None = None
    overwrite: bool = False
    first: int | None = None
    last: int | None = None
    patience: float = 60.0

    @property
    def publishes(self) -> bool:
        """Whether something is written to the target."""
        return self.to_parquet is None
