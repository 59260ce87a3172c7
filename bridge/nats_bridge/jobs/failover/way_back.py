"""Builds the `sources` entry that returns new messages of a copy to its source after a failover.

It begins after the target's last copy, so that no copy returns. A rule or server resumes after the newest record it
finds, regardless of the entry's start. So the entry has one more filter, for a subject that no message has. This makes
it differ from the entry of any earlier failback, and its start counts.
"""

from dataclasses import dataclass

from nats_bridge.client.jetstream_api import Json
from nats_bridge.jobs.failover.copied_stream import CopiedStream
from nats_bridge.kinds.copying.entry_subjects import SETS_APART
from nats_bridge.kinds.copying.handoff.spelling import unselected_subject
from nats_transforms.errors import TransformError


@dataclass(frozen=True, slots=True)
class WayBack:
    """The entry, or why there is none.

    Attributes:
        entry: for the `sources` of a rule, or of the source's own configuration.
        obstacle: the reason why no entry can be written; empty if one can.
    """

    entry: Json | None
    obstacle: str = ""


def way_back(copied: CopiedStream, newest_at: int) -> WayBack:
    """Return the entry that brings a target's own messages to the source.

    Args:
        copied: the stream and its copy.
        newest_at: the target's sequence of the last copy; 0 without one.
    """
    if not newest_at:
        return WayBack(None, f"{copied.target_name} holds no copy of {copied.source_name}")
    transforms: list[Json] = []
    for entry in copied.entries:
        for transform in entry.sourcing.transforms:
            if transform.is_empty:
                transforms.append({"src": transform.pattern.decode(), "dest": ""})
                continue
            try:
                reverse = transform.reverse()
            except TransformError as error:
                return WayBack(
                    None, f"{transform.pattern.decode()} to {transform.destination.decode()}: {error.reason}"
                )
            transforms.append({"src": reverse.source.decode(), "dest": reverse.destination.decode()})
        if not entry.sourcing.transforms:
            texts = [text.decode() for text in entry.sourcing.record_filters]
            if texts == [">"]:
                texts = list(copied.source["config"].get("subjects") or texts)
            transforms += ({"src": text, "dest": ""} for text in texts)
    marker = unselected_subject([each["src"] for each in transforms], SETS_APART, str(newest_at + 1))
    if marker is None:
        return WayBack(None, f"{copied.source_name} takes every subject, so that no filter can set this entry apart")
    return WayBack(
        {
            "name": copied.target_name,
            "opt_start_seq": newest_at + 1,
            "subject_transforms": [*transforms, {"src": marker, "dest": ""}],
        }
    )
