"""A differential run as a text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.differential.result import DifferentialResult, Disagreement


def text(result: DifferentialResult) -> str:
    """The figures of a run, and every disagreement with its catalogue entry; lines without a final line end."""
    return "\n".join(_lines(result))


def _lines(result: DifferentialResult) -> Iterator[str]:
    verdict = "all agree" if result.is_good else f"{len(result.disagreements)} DISAGREE"
    yield (
        f"nats-server {result.version}, seed {result.seed}: {result.total:,} comparisons in {result.trials:,} trials, "
        f"{verdict} ({result.seconds:.1f} s)"
    )
    yield from _table(result.comparisons)
    if result.repeated:
        yield f"  {result.repeated:>7,}  equal inputs, compared again and not counted"
    if result.invisible:
        yield f"  {result.invisible:>7,}  messages that no subscription could receive, not counted"
    if result.held_back:
        yield f"held back from this version: {sum(result.held_back.values()):,} trials"
        yield from _table(result.held_back)
    for each in result.disagreements:
        yield ""
        yield from lines(each)


def _table(counts: Mapping[str, int]) -> Iterator[str]:
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"  {count:>7,}  {name}"


def lines(disagreement: Disagreement) -> Iterator[str]:
    """A disagreement: what the server and the engine showed, and the entry for the catalogue."""
    yield f"trial {disagreement.number}, {disagreement.kind}: {disagreement.where}"
    yield f"  server: {disagreement.native}"
    yield f"  engine: {disagreement.engine}"
    if disagreement.entry:
        yield f"  shrunk, the server was asked {disagreement.asked} times; for the catalogue:"
        yield ""
        yield disagreement.entry.rstrip("\n")
