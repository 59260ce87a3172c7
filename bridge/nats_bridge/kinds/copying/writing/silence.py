"""Whether a target leaves messages without an answer, across the rounds of an entry.

A server of 2.15.3 whose disk is full answers no publication at all. Each round then looks healthy until its answers are
overdue: it is attached to the source, and the connection works. So the fact outlives the round. It ends with an answer,
or when nothing is left to send.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Silence:
    """The state, shared by an entry and the publishers of its rounds.

    Attributes:
        lasts: whether answers were overdue, and none has come since.
    """

    lasts: bool = False
