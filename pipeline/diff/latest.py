"""The newest message of each subject: what a stream that keeps one of each holds, and what a bucket shows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge.pipeline.subject_column import answer_function
from nats_bridge.transforms.republish import Republish
from nats_bridge.transforms.sourcing import Sourcing


def latest(frame: DataFrame, rule: Sourcing | Republish | None = None) -> DataFrame:
    """Those of a side's messages behind which there is none with the same subject.

    Args:
        frame: with the columns of a capture.
        rule: by which the subjects of copies count, and what is not copied does not; None for the messages' own.
    """
    subject = F.col("subject").cast("binary")
    if rule is not None:
        subject = answer_function(rule.destination, "binary")(subject)
    named = frame.select(subject.alias("of"), "sequence").where("of is not null")
    newest = named.groupBy("of").agg(F.max("sequence").alias("sequence"))
    return frame.join(newest.select("sequence"), "sequence", "left_semi")
