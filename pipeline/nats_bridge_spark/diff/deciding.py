"""Decides, from a sample, how to identify messages of two sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.diff.comparing import By
from nats_bridge_spark.diff.provenance import provenance, same_source
from nats_bridge_spark.diff.sides import OpenSide
from nats_bridge_spark.errors import OptionError
from nats_transforms import header_block

_SAMPLE: Final = 200  # messages
_MOST: Final = 0.9  # of the sample


def decide(left: OpenSide, right: OpenSide) -> tuple[By, str]:
    """Decide from some messages of both sides; how messages are identified, and why, in words for a person.

    Raises:
        OptionError: nothing in them identifies them.
    """
    blocks = [_blocks(side.frame) for side in (left, right)]
    sources = [_sources(each) for each in blocks]
    common = sources[0] & sources[1]
    if common:
        return "provenance", f"both sides' messages say that they come from {_names(common)}"
    own = left.stream.encode()
    if any(same_source(source, own) for source in sources[1]):
        return "provenance:right", f"the right side's messages say that they come from {left.stream}"
    if _is_numbered_alike(left, right):
        return "sequence", "messages with the same sequence are the same on both sides"
    if all(_share(header_block.read(block, b"Nats-Msg-Id") for block in each) >= _MOST for each in blocks):
        return "id", "the messages of both sides have a Nats-Msg-Id"
    raise OptionError(
        "nothing shows which messages of the two sides are the same: not where they come from"
        f" (left {_names(sources[0]) or 'says nothing'}, right {_names(sources[1]) or 'says nothing'}),"
        " nor their sequences, nor their ids.\n"
        "Choose with --by sequence, --by provenance, --by provenance:right (with --source NAME) or --by id"
    )


def _blocks(frame: DataFrame) -> list[bytes]:
    return [bytes(row[0] or b"") for row in frame.select("header_block").limit(_SAMPLE).collect()]


def _sources(blocks: list[bytes]) -> set[bytes]:
    """The sources that messages name; none if too few messages do."""
    found = [provenance(block) for block in blocks]
    return {each.source for each in found if each is not None} if _share(found) >= _MOST else set()


def _share(found: Iterable[object]) -> float:
    values = list(found)
    return sum(bool(value) for value in values) / len(values) if values else 0.0


def _is_numbered_alike(left: OpenSide, right: OpenSide) -> bool:
    """Whether messages with the same sequence mostly have the same payload, from where both sides have messages."""
    start = max(left.first, right.first)

    def some(side: OpenSide) -> DataFrame:
        return side.frame.where(F.col("sequence") >= start)

    payloads = F.coalesce("data", F.lit(b""))
    here = {row[0]: row[1] for row in some(left).select("sequence", F.xxhash64(payloads)).limit(_SAMPLE).collect()}
    if not here:
        return False
    there = some(right).where(F.col("sequence").isin(list(here))).select("sequence", F.xxhash64(payloads)).collect()
    alike = sum(1 for sequence, digest in there if here[sequence] == digest)
    return alike * 2 > len(here)


def _names(sources: set[bytes]) -> str:
    return ", ".join(sorted(source.decode("utf-8", "backslashreplace") for source in sources)[:3])
