"""Decides, from a sample, how to identify messages of two sides."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from nats_bridge_spark.capture.parquet_files import within
from nats_bridge_spark.diff.comparing import By, Comparison
from nats_bridge_spark.diff.provenance import provenance, same_source
from nats_bridge_spark.diff.sides import Side
from nats_bridge_spark.errors import OptionError
from nats_transforms import header_block
from nats_transforms.sourcing import Sourcing

_SAMPLE: Final = 200  # messages
_MOST: Final = 0.9  # of the sample
_PAYLOADS: Final = pa.schema([("sequence", pa.int64()), ("data", pa.binary())])


def decided(left: Side, right: Side, wanted: Comparison) -> tuple[Comparison, str]:
    """Return the comparison of two sides, and the reason for the identity as a sentence; empty if the user chose it."""
    by, reason = _identity(left, right, wanted)
    rule, source = wanted.rule, b""
    if by == "provenance:right":
        source = wanted.source or left.stream.encode()
        if not source:
            raise OptionError(f"{left.place.shown}: does not name its stream; use --source NAME")
    elif wanted.source:
        raise OptionError("--source NAME: belongs to --by provenance:right")
    if rule is not None and not (
        by == "provenance:right"
        or (isinstance(rule, Sourcing) and (by == "subject" or (by == "sequence" and rule.mirrors)))
    ):
        raise OptionError(
            f"--by {by}: a rule or transform makes copies of the left side's messages, so the right side must say what "
            "it holds copies of: --by provenance:right"
        )
    return replace(wanted, by=by, source=source, first=left.place.first or 0, last=left.place.last), reason


def _identity(left: Side, right: Side, wanted: Comparison) -> tuple[By, str]:
    if wanted.by != "auto":
        return wanted.by, ""
    if wanted.rule is not None:
        return "provenance:right", "the right side's messages are copies of the left side's"
    samples = [side.rows.first(_SAMPLE).selected("header_block").table() for side in (left, right)]
    blocks: list[list[bytes]] = [sample.column(0).to_pylist() for sample in samples]
    sources = [_sources(each) for each in blocks]
    if common := sources[0] & sources[1]:
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
        "Choose with --by sequence, --by provenance, --by provenance:right (with --source NAME), --by id"
        " or, for buckets, --by subject"
    )


def _sources(blocks: list[bytes]) -> set[bytes]:
    found = [provenance(block) for block in blocks]
    return {each.source for each in found if each is not None} if _share(found) >= _MOST else set()


def _share(found: Iterable[object]) -> float:
    values = list(found)
    return sum(bool(value) for value in values) / len(values) if values else 0.0


def _is_numbered_alike(left: Side, right: Side) -> bool:
    """Return whether messages with the same sequence mostly have the same payload, in the range of both sides."""
    start = max(left.first, right.first)
    lefts, rights = (side.rows.selected("sequence", "data") for side in (left, right))
    some = lefts.mapped(lambda batches: (within(batch, start, None) for batch in batches), _PAYLOADS)
    some = some.first(_SAMPLE).kept()
    payloads = (rows.table().to_pydict() for rows in (some, rights.having(some, ["sequence"])))
    here, there = (dict(zip(columns["sequence"], columns["data"], strict=True)) for columns in payloads)
    alike = sum(1 for sequence, payload in there.items() if here[sequence] == payload)
    return bool(here) and alike * 2 > len(here)


def _names(sources: set[bytes]) -> str:
    return ", ".join(sorted(source.decode("utf-8", "backslashreplace") for source in sources)[:3])
