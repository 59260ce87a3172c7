"""Latency of live copying: one source copied natively and by `nats-bridge run` at once, each copy's time compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.copy_scene import SOURCE, TARGET, native_copy, own_copy, scene
from benchmarks.figures import Ratio, Report, percentile
from benchmarks.load import publish_paced
from benchmarks.stored_times import stored_times
from benchmarks.stream_growth import watch_growth

_RATE = 1_000  # messages per second
_OWN_TARGET = "OWN"
_PERCENTS = (50, 90, 99, 99.9)


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure."""
    rows: list[tuple[str, ...]] = []
    ratios: list[Ratio] = []
    for storage in ("memory", "file"):
        what = f"{version}, {storage}"
        say(f"copy-latency: {what}")
        native, own = _measure(version, storage, _RATE * (2 if quick else 8))
        for name, values in (("native", native), ("nats-bridge", own)):
            rows.append((f"{what}: {name}", *(f"{percentile(values, percent):.3f}" for percent in _PERCENTS)))
        ratios += [
            Ratio(
                f"added by nats-bridge over native sources, {what}, p{percent}",
                percentile(own, percent) - percentile(native, percent),
                unit="ms",
            )
            for percent in (50, 99)
        ]
    header = f"milliseconds at {_RATE:,} messages/s", *(f"p{percent:g}" for percent in _PERCENTS)
    note = (
        "From the time at which the source stored a message to that at which the target stored its copy, by the"
        " server's time stamps. Both copies of each message come from the same run."
    )
    return Report(header, rows, ratios, (note,))


def _measure(version: str, storage: str, messages: int) -> tuple[Sequence[float], Sequence[float]]:
    """Milliseconds between storing a message and storing its copy: natively, and by the sidecar."""
    with (
        scene(version, storage) as place,
        native_copy(place),
        own_copy(place, _OWN_TARGET, "sidecar.ready"),
    ):
        publish_paced(place.source.port, messages, _RATE)
        for stream in (TARGET, _OWN_TARGET):
            watch_growth(place.target.port, stream, messages)
        source, native, own = (
            stored_times(place.source.port, stream, messages) for stream in (SOURCE, TARGET, _OWN_TARGET)
        )
    return milliseconds(source, native), milliseconds(source, own)


def milliseconds(source: Sequence[int], copies: Sequence[int]) -> Sequence[float]:
    """How much later each copy was stored than its message; both in nanoseconds."""
    return [(copy - message) / 1e6 for message, copy in zip(source, copies, strict=True)]
