"""Finds messages out of order: common messages of both sides that come after a later one on the right.

Messages of different sources (or entries of a rule) have no order among each other, so each such group is compared
alone: in the order of the right, a message is out of order if a higher sequence of the left comes before it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from nats_bridge_spark.diff.details import batches_of, identity
from nats_bridge_spark.diff.findings import FINDINGS, Finding
from nats_bridge_spark.diff.rows import Batches, Rows

_PAIR: Final = ("source", "number", "group", "left", "right")


def order_findings(matches: Rows) -> Rows:
    """Return findings about the messages that are out of order, with columns `FINDINGS`.

    Args:
        matches: see `matching.matched`; of messages that a side has several times, the first ones count.
    """
    pairs = matches.where("common").selected(*_PAIR)
    return pairs.together(["group"], [("group", "ascending"), ("right", "ascending")]).mapped(_overtaken, FINDINGS)


def _overtaken(batches: Batches) -> Batches:
    last, highest = None, 0
    for batch in filter(len, batches):
        groups, lefts = batch.column("group").to_numpy(), batch.column("left").to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
        overtaken = np.zeros(len(groups), np.bool_)
        for start, end in pairwise(starts):
            before = [highest if groups[start] == last else lefts[start]]
            reached = np.maximum.accumulate(np.concatenate([before, lefts[start:end]]))
            overtaken[start:end] = lefts[start:end] < reached[:-1]
            last, highest = groups[start], reached[-1]
        rows = batch.filter(pa.array(overtaken)).to_pylist()
        yield from batches_of(
            Finding("order", identity(row["source"], row["number"]), row["left"], row["right"]) for row in rows
        )
