"""Decides, from a sample, how to identify messages of two sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from nats_bridge_spark.diff.comparing import By, Comparison
from nats_bridge_spark.diff.findings import text
from nats_bridge_spark.diff.provenance import provenance, same_source
from nats_bridge_spark.diff.request import DiffRequest, SideLocation
from nats_bridge_spark.diff.result import Extent
from nats_bridge_spark.errors import OptionError
from nats_transforms import header_block
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing

_SAMPLE: Final = 200  # messages
_MOST: Final = 0.9  # of the sample


class Sampled(Protocol):
    """A side of which some messages can be read."""

    @property
    def stream(self) -> str:
        """The name of its stream."""

    @property
    def first(self) -> int:
        """Its lowest sequence."""

    def blocks(self, most: int) -> list[bytes]:
        """The header blocks of some messages."""

    def payloads(self, start: int, most: int) -> dict[int, object]:
        """Some sequences from one on, each with what stands for its payload."""

    def payloads_of(self, sequences: Sequence[int]) -> Iterator[tuple[int, object]]:
        """Do `payloads` for the given sequences that are there."""


def require_two(left: SideLocation, right: SideLocation) -> None:
    """Check that there are two sides.

    Raises:
        OptionError: both are the same.
    """
    if left == right:
        raise OptionError(f"both sides are the same: {left.shown}; say two streams or captures, or two ranges of one")


def decision(left: Sampled, right: Sampled, wanted: DiffRequest) -> tuple[By, str]:
    """How messages are identified; and why, in words for a person, empty where the user said so.

    Raises:
        OptionError: nothing in them identifies them.
    """
    if wanted.by != "auto":
        return wanted.by, ""
    if wanted.rule is not None:
        return "provenance:right", "the right side's messages are copies of the left side's"
    return decide(left, right)


def comparison_of(left: Extent, by: By, wanted: DiffRequest) -> Comparison:
    """Return the comparison that the options describe.

    Raises:
        OptionError: options do not go together.
    """
    rule, source = wanted.rule, b""
    if by == "provenance:right":
        source = (wanted.source or left.stream).encode()
        if not source:
            raise OptionError(f"{left.place.shown}: does not say of which stream it is; give --source NAME")
    elif wanted.source:
        raise OptionError("--source NAME: belongs to --by provenance:right")
    if rule is not None and not (
        by == "provenance:right"
        or (by == "sequence" and _keeps_sequences(rule))
        or (by == "subject" and isinstance(rule, Sourcing))
    ):
        raise OptionError(
            f"--by {by}: a rule or transform makes copies of the left side's messages, so the right side must say what "
            "it holds copies of: --by provenance:right"
        )
    return Comparison(
        by=by,
        bridged=wanted.like == "bridged" or (wanted.like == "auto" and by.startswith(("provenance", "subject"))),
        ignored_headers=wanted.ignored_headers,
        source=source,
        first=left.place.first or 0,
        last=left.place.last,
        rule=rule,
    )


def _keeps_sequences(rule: Sourcing | Republish) -> bool:
    return isinstance(rule, Sourcing) and rule.mirrors


def decide(left: Sampled, right: Sampled) -> tuple[By, str]:
    """Decide from some messages of both sides; how messages are identified, and why, in words for a person.

    Raises:
        OptionError: nothing in them identifies them.
    """
    blocks = [side.blocks(_SAMPLE) for side in (left, right)]
    sources = [_sources(each) for each in blocks]
    common = sources[0] & sources[1]
    if common:
        return "provenance", f"both sides' messages say that they come from {_names(common)}"
    own = left.stream.encode()
    if any(same_source(source, own) for source in sources[1]):
        return "provenance:right", f"the right side's messages say that they come from {left.stream}"
    if _is_numbered_alike(left, right):
        return "sequence", "messages with the same sequence are the same on both sides"
    if all(_share(header_block.read(block, b"Nats-Msg-Id") for block in each) >= _MOST for each in blocks):
        return "id", "the messages of both sides have a Nats-Msg-Id"
    raise OptionError(
        "nothing shows which messages of the two sides are the same: not where they come from"
        f" (left {_names(sources[0]) or 'says nothing'}, right {_names(sources[1]) or 'says nothing'}),"
        " nor their sequences, nor their ids.\n"
        "Choose with --by sequence, --by provenance, --by provenance:right (with --source NAME) or --by id"
    )


def _sources(blocks: list[bytes]) -> set[bytes]:
    """The sources that messages name; none if too few messages do."""
    found = [provenance(block) for block in blocks]
    return {each.source for each in found if each is not None} if _share(found) >= _MOST else set()


def _share(found: Iterable[object]) -> float:
    values = list(found)
    return sum(bool(value) for value in values) / len(values) if values else 0.0


def _is_numbered_alike(left: Sampled, right: Sampled) -> bool:
    """Whether messages with the same sequence mostly have the same payload, from where both sides have messages."""
    here = left.payloads(max(left.first, right.first), _SAMPLE)
    if not here:
        return False
    alike = sum(1 for sequence, payload in right.payloads_of(list(here)) if here[sequence] == payload)
    return alike * 2 > len(here)


def _names(sources: set[bytes]) -> str:
    return ", ".join(sorted(source.decode("utf-8", "backslashreplace") for source in sources)[:3])


def nothing_in_common(
    left: Extent, right: Extent, comparison: Comparison, some: Sequence[tuple[bytes, int] | None]
) -> str:
    """An error's text, with a hint at the reason.

    Args:
        left: the left side.
        right: the right one.
        comparison: what was compared.
        some: an identity of the left side, and of the right one; None where there is none.
    """

    def shown(identity: tuple[bytes, int] | None) -> str:
        source, number = identity or (b"", 0)
        if comparison.by in ("id", "subject"):
            return text(source) or "none"
        if comparison.by == "provenance":
            return f"{text(source)} {number}" if source else "none"
        return str(number) if number > 0 else "none"

    hint = (
        "; give --source NAME if the left stream has another name there" if comparison.by == "provenance:right" else ""
    )
    return (
        f"{left.place.shown} and {right.place.shown} have no message in common by {comparison.by} "
        f"(the left one has {shown(some[0])}, the right one {shown(some[1])}){hint}"
    )
