"""The driver's plan of a write, which every task follows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from nats_bridge.client.stream_identity import KnownStream
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.sink.layout import RowLayout
from nats_bridge_spark.sink.options import WriteOptions

_NAMED: Final = re.compile(r"(?P<name>[A-Za-z0-9_.:-]{1,100}?)(?:@(?P<after>[0-9]{1,19}))?")


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The common part of all tasks of a write. It is sent to them, so it contains no secrets.

    Attributes:
        options: the user's.
        layout: the columns of the message parts.
        write_id: the name of the write; empty for a streaming query, whose own id takes its place.
        after: the stream's last sequence before the write stored anything; None if unknown.
        known: the identity of the stream at that time; None if unknown.
        planned_at: seconds since 1970 at that moment.
        repeats: whether an earlier run of the same write may have stored rows.
        streaming: whether the rows come in micro-batches.
    """

    options: WriteOptions
    layout: RowLayout
    write_id: str = ""
    after: int | None = None
    known: KnownStream | None = None
    planned_at: float = 0.0
    repeats: bool = False
    streaming: bool = False

    @property
    def name(self) -> str:
        """The value of the option `writeId` that repeats this write."""
        return self.write_id if self.after is None else f"{self.write_id}@{self.after}"


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The identity of a Spark task.

    Attributes:
        partition: the number of its partition.
        attempt: 0 for the first one, as Spark counts: a retried stage restarts at 0.
        query: the id of the streaming query; empty in a batch write.
        run: the id of the query's present run.
        batch: the micro-batch; 0 in a batch write.
    """

    partition: int
    attempt: int
    query: str = ""
    run: str = ""
    batch: int = 0


def named_write(write_id: str | None) -> tuple[str, int | None]:
    """Return the name of a write, and the sequence before its messages, if the option contains it.

    Args:
        write_id: the option `writeId`: a name, perhaps with `@` and the stream's last sequence before the write, as
            errors of a failed write name it.

    Raises:
        OptionError: it cannot be a name.
    """
    if write_id is None:
        return uuid4().hex[:12], None
    found = _NAMED.fullmatch(write_id)
    if found is None:
        raise OptionError(f"option writeId: '{write_id}': use letters, digits and . _ : - (at most 100)")
    return found["name"], int(found["after"]) if found["after"] else None
