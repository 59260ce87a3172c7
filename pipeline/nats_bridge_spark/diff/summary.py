"""A comparison's result for a terminal, and as plain values for programs."""

from collections.abc import Iterator
from typing import Any

from nats_bridge.observability.printable import printable
from nats_bridge_spark.diff.findings import KINDS, Finding
from nats_bridge_spark.diff.run import DiffResult
from nats_bridge_spark.reports import counted

_BY = {
    "sequence": "their sequences",
    "provenance": "where they come from",
    "provenance:right": "what the right side's messages are copies of",
    "id": "their Nats-Msg-Id",
    "subject": "their subject, the newest of each",
}
_ROOM = 60  # characters of an example message


def summary(result: DiffResult) -> Iterator[str]:
    """Yield lines: both sides, compared and omitted parts, a table of findings, examples, and the result."""
    counts, comparison = result.counts, result.comparison
    for name, side, out in (("left ", result.left, result.left_out[0]), ("right", result.right, result.left_out[1])):
        of = f" of {side.stream}" if side.stream and side.stream != side.place.name else ""
        left_out = f"; {counted(out, 'message')} not compared" if out else ""
        shown = printable(f"{side.place.shown}: {counted(side.messages, 'message')}{of}")
        yield f"{name}  {shown}, sequences {side.first:,} to {side.last:,}{left_out}"
    reason = f": {result.reason}" if result.reason else ""
    yield f"by     {comparison.by} ({_BY[comparison.by]}){reason}"
    if comparison.by == "subject" and any(result.left_out):
        yield "       left out: older messages of the same subject, and what the rule does not copy"
    elif result.left_out[0]:
        yield "       left out on the left: what the rule does not copy"
    if result.left_out[1] and comparison.by != "subject":
        yield "       left out on the right: what comes from elsewhere, or from outside of the left side's range"
    for what, (left, right) in counts.ignored.items():
        divergence = f", {what.divergence}" if what.divergence else ""
        yield f"       not compared: {what.what} (left {left:,}, right {right:,}{divergence})"
    yield ""
    yield f"{counts.common:,} messages are on both sides; {counts.equal:,} of them are equal"
    if result.kinds:
        yield ""
        yield from _table(result)
    yield ""
    yield _verdict(result)


def as_json(result: DiffResult) -> dict[str, Any]:
    """Return the result as plain values for `json.dumps`."""
    counts = result.counts
    return {
        "equal": result.is_equal,
        "by": result.comparison.by,
        "reason": result.reason,
        "left": {"place": result.left.place.shown, "stream": result.left.stream, "messages": result.left.messages},
        "right": {"place": result.right.place.shown, "stream": result.right.stream, "messages": result.right.messages},
        "left_out": {"left": result.left_out[0], "right": result.left_out[1]},
        "common": counts.common,
        "agree": counts.equal,
        "ignored": [
            {"what": what.what, "divergence": what.divergence, "left": left, "right": right}
            for what, (left, right) in counts.ignored.items()
        ],
        "findings": {kind: result.kinds.get(kind, 0) for kind in KINDS},
        "allowed": sorted(result.allowed),
        "headers": result.headers,
        "examples": [each._asdict() for some in result.examples.values() for each in some],
    }


def _table(result: DiffResult) -> Iterator[str]:
    longest = max(map(len, result.kinds))
    room = max(len(f"{number:,}") for number in result.kinds.values())
    for kind, number in result.kinds.items():
        allowed = " (allowed)" if kind in result.allowed else ""
        yield f"{kind:<{longest}}  {number:>{room},}  {KINDS[kind]}{allowed}"
        if kind == "header" and len(result.headers) > 1:
            yield f"    {printable(', '.join(f'{name} {messages:,}' for name, messages in result.headers.items()))}"
        for each in result.examples.get(kind, ()):
            yield f"    {example_line(each)}"


def example_line(each: Finding) -> str:
    """Return a finding in one line: which message, its sequences, and both values."""
    numbers = [
        f"{name} {number:,}"
        for name, number in (("left", each.left_sequence), ("right", each.right_sequence))
        if number is not None
    ]
    place = f"{each.identity} " if each.identity else ""
    words = f"{place}({', '.join(numbers)})"
    if each.kind == "order":
        return f"{words}: comes after a later one on the right"
    is_header = each.kind == "header"
    values = [value for value in (each.left_value, each.right_value) if is_header or value is not None]
    shown = " | ".join("none" if value is None else _short(value) for value in values)
    return printable(f"{words}{f' {each.field}' if is_header else ''}: {shown}")


def _verdict(result: DiffResult) -> str:
    total = sum(result.kinds.values())
    allowed = sum(number for kind, number in result.kinds.items() if kind in result.allowed)
    if not result.is_equal:
        return f"DIFFERENT  {counted(total - allowed, 'finding')}" + (f", and {allowed:,} allowed" if allowed else "")
    return "EQUAL" + (f"  but for {counted(allowed, 'allowed finding')}" if allowed else "")


def _short(text: str) -> str:
    return text if len(text) <= _ROOM else text[: _ROOM - 1] + "…"
