"""The newest message of each subject: what a stream that keeps one of each holds, and what a bucket shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nats_bridge.transforms.republish import Republish
from nats_bridge.transforms.sourcing import Sourcing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["latest"]


def latest(frame: DataFrame, rule: Sourcing | Republish | None = None) -> DataFrame:
    """Those of a side's messages behind which there is none with the same subject.

    Args:
        frame: with the columns of a capture.
        rule: by which the subjects of copies count, and what is not copied does not; None for the messages' own.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    subject = F.col("subject").cast("binary")
    if rule is not None:
        import pyarrow as pa
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # made public by a star

        def copied(subjects: pa.Array) -> pa.Array:
            each = subjects.dictionary_encode()
            made = pa.array([rule.destination(one) for one in each.dictionary.to_pylist()], pa.binary())
            return made.take(each.indices)

        # What kind of function it is, Spark reads from its annotations, which it cannot resolve as text.
        copied.__annotations__.update({"subjects": pa.Array, "return": pa.Array})
        subject = arrow_udf(copied, "binary")(subject)
    named = frame.select(subject.alias("of"), "sequence").where("of is not null")
    newest = named.groupBy("of").agg(F.max("sequence").alias("sequence"))
    return frame.join(newest.select("sequence"), "sequence", "left_semi")
