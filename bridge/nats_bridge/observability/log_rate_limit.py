"""Limits storms of the same event: logs a few, then one now and then with the number of suppressed ones.

Events that begin or end something (`ALWAYS`) are always written.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from structlog import DropEvent

ALWAYS: Final = frozenset(
    {
        "connection.closed",
        "leadership.bucket_created",
        "leadership.failed",
        "leadership.few_servers",
        "leadership.leads",
        "leadership.lost",
        "leadership.one_server",
        "leadership.ready",
        "leadership.released",
        "reload.applied",
        "reload.begins",
        "reload.failed",
        "reload.refused",
        "reload.unchanged",
        "rule.abandon_incomplete",
        "rule.abandoned",
        "rule.copied_again",
        "rule.drain_failed",
        "rule.drain_incomplete",
        "rule.drain_timeout",
        "rule.durable_left",
        "rule.ended_at_once",
        "rule.failed",
        "rule.lead_lost",
        "rule.ready",
        "rule.stopped",
        "sidecar.draining",
        "sidecar.ended",
        "sidecar.ready",
        "sidecar.refused",
        "sidecar.starting",
        "sidecar.stopped",
        "telemetry.exports",
        "watch.stepped_down",
    }
)
"""Events that are never left out: they begin or end something."""

_ABOUT = ("event", "rule", "connection", "stream", "source")
"""Lines that differ in one of these are not the same."""

_MOST_KINDS = 10_000  # of lines, remembered


@dataclass(slots=True)
class _Seen:
    tokens: float
    at: float
    suppressed: int = 0


class StormLimit:
    """A processor for structlog.

    Args:
        burst: lines of the same kind that are written at once.
        pause: seconds after which one more is.
        clock: seconds, ever growing.
    """

    def __init__(self, burst: int = 10, pause: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._pause = pause
        self._clock = clock
        self._seen: OrderedDict[tuple[Any, ...], _Seen] = OrderedDict()

    def __call__(self, _: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Pass a line on, with `suppressed` if others of its kind were left out before it.

        Raises:
            DropEvent: it is left out.
        """
        if line.get("event") in ALWAYS:
            return line
        now = self._clock()
        kind = tuple(line.get(field) for field in _ABOUT)
        seen = self._seen.get(kind)
        if seen is None:
            seen = self._seen[kind] = _Seen(self._burst, now)
            if len(self._seen) > _MOST_KINDS:
                self._seen.popitem(last=False)
        self._seen.move_to_end(kind)
        seen.tokens = min(seen.tokens + (now - seen.at) / self._pause, self._burst)
        seen.at = now
        if seen.tokens < 1:
            seen.suppressed += 1
            raise DropEvent
        seen.tokens -= 1
        if seen.suppressed:
            line["suppressed"], seen.suppressed = seen.suppressed, 0
        return line
