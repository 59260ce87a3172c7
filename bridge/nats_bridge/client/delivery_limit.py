"""Limits the messages that a server may send ahead on a connection, after it was closed as a slow consumer.

If more than `max_pending` bytes wait for a connection, the server ends it without an error (2.9 to 2.15). Flow control
of push consumers does not prevent that, because its window begins with 2 MiB regardless of `max_pending`. After such an
end, consumers are created with `max_ack_pending`. Messages sent ahead can only explain an end soon after the connection
was established. `ended_connections` asks the server for the reason. If the server may not be asked, the second
unexplained end in succession counts as one.
"""

_SOON = 10.0  # seconds; a connection that lived longer did not end because of messages sent ahead
_RELAPSE = 60.0  # seconds after a raised limit in which a loss is attributed to it
_FIRST = 1024  # messages, after the first time
_SHRINK = 4
_UNEXPLAINED = 2  # ends
_CALM, _LONGEST_CALM = 2.0, 3600.0  # seconds without a loss until twice as much is sent ahead


class DeliveryLimit:
    """The limit of one connection, without I/O; the caller passes the time, in seconds.

    Attributes:
        messages: the limit of unacknowledged messages for a consumer; None for no limit.
    """

    def __init__(self) -> None:
        self.messages: int | None = None
        self._is_up = False
        self._calm = _CALM
        self._grown = False  # since the last loss
        self._changed = 0.0  # when it was established, or the limit grew
        self._possible = True
        self._unexplained = 0  # ends in succession

    def established(self, now: float) -> None:
        """Note that the connection is established."""
        self._is_up, self._changed = True, now

    def lost(self, now: float) -> bool:
        """Note that the connection ended. Return whether messages that were sent ahead may be the cause."""
        was_up, self._is_up = self._is_up, False
        is_soon = was_up and self._possible and now - self._changed < (_RELAPSE if self._grown else _SOON)
        if not is_soon:
            self._grown, self._unexplained = False, 0
        return is_soon

    def explained(self, *, slow_consumer: bool | None) -> bool:
        """Lower the limit if the connection ended as a slow consumer. Return whether it is lower now.

        Args:
            slow_consumer: whether the server ended it for that reason, after `lost` returned True; None if unknown.
        """
        grown, self._grown = self._grown, False
        self._unexplained = self._unexplained + 1 if slow_consumer is None else 0
        if not slow_consumer and self._unexplained < _UNEXPLAINED:
            return False
        if grown:
            self._calm = min(2 * self._calm, _LONGEST_CALM)
        self.messages = _FIRST if self.messages is None else max(self.messages // _SHRINK, 1)
        return True

    def look(self, now: float) -> None:
        """Raise the limit, if the connection has lasted."""
        if self.messages is None or not self._is_up or now - self._changed < self._calm:
            return
        self.messages = 2 * self.messages if self.messages < _FIRST else None
        self._changed, self._grown = now, True

    def refused(self) -> None:
        """Note that this user may not acknowledge. A limit would then block the consumer, so there is none."""
        self.messages, self._possible = None, False
