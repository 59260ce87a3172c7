"""A history through a rule into Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nats_bridge.pipeline.backfill.outcomes import WRITTEN, Outcomes, Writing
from nats_bridge.pipeline.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Written", "write_files"]


class Written(NamedTuple):
    """What was written.

    Attributes:
        read: messages of the history.
        copied: rows of messages that the target would take.
        rejected: rows of messages that it would not.
        last: the last sequence read; 0 for none.
    """

    read: int
    copied: int
    rejected: int
    last: int


def write_files(rows: DataFrame, outcomes: Outcomes, stream: str, path: str, *, mode: str) -> Written:
    """Write what the rule makes of the rows; see `pipeline.backfill.outcomes.WRITTEN` for the columns.

    Args:
        rows: the history.
        outcomes: the rule.
        stream: the origin's name.
        path: the folder, which appears as a whole at the end.
        mode: of the writer: `errorifexists`, `overwrite` or `append`.

    Raises:
        OptionError: the folder is there, and is not to be replaced.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation, functions

    read, made = Observation(), Observation()
    history = rows.observe(
        read, functions.count(functions.lit(1)).alias("read"), functions.max("sequence").alias("last")
    )
    rejected = functions.sum(functions.when(functions.col("rejected").isNotNull(), 1).otherwise(0))
    rows_made = history.mapInArrow(Writing(outcomes, stream), WRITTEN).observe(
        made, functions.count(functions.lit(1)).alias("made"), rejected.alias("rejected")
    )
    try:
        rows_made.write.mode(mode).parquet(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise OptionError(
                f"--to-parquet {path}: is there already: name another folder, or replace it with --overwrite"
            ) from None
        raise
    refused = int(made.get["rejected"] or 0)
    return Written(int(read.get["read"]), int(made.get["made"]) - refused, refused, int(read.get["last"] or 0))
