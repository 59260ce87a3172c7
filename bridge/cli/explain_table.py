"""How `nats-bridge explain` lays out a transform and a subject's way through it."""

from __future__ import annotations

from typing import Final

import click

from nats_bridge.bridge.cli.literal_functions import literal_functions
from nats_bridge.transforms.destination import Kind
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.explanation import Explanation, Input, TokenOrigin
from nats_bridge.transforms.part import Part
from nats_bridge.transforms.subject import is_valid_publish
from nats_bridge.transforms.transform import Transform

__all__ = ["heading", "subject_lines", "transform_lines"]

_DEFECTS: Final = {
    "crash-partition-zero": "partition of 0 ends servers of this version at the first matching message",
}
_LENGTHS: Final = {
    Kind.SPLIT_FROM_LEFT.value: "cut after the first {n} bytes",
    Kind.SPLIT_FROM_RIGHT.value: "cut before the last {n} bytes",
    Kind.SLICE_FROM_LEFT.value: "cut into pieces of {n} bytes from the left",
    Kind.SLICE_FROM_RIGHT.value: "cut into pieces of {n} bytes from the right",
    Kind.LEFT.value: "the first {n} bytes",
    Kind.RIGHT.value: "the last {n} bytes",
}


def heading(transform: Transform) -> list[str]:
    """What is applied, and what its servers do wrong with it."""
    lines = [
        f"source       {_text(transform.pattern)}",
        f"destination  {_text(transform.destination) or '(empty: no transform)'}",
        f"server       {transform.dialect.name}",
    ]
    warnings = [_DEFECTS.get(defect, defect) for defect in transform.defects]
    warnings += literal_functions(transform.destination)
    return lines + [click.style(f"warning      {warning}", fg="yellow") for warning in warnings]


def transform_lines(transform: Transform) -> list[str]:
    """Where each token of the destination will come from, without a subject."""
    rows: list[tuple[str, ...]] = [("#", "token", "comes from")]
    rows += [(str(at), _text(part.text), _plan(part)) for at, part in enumerate(transform.parts, 1)]
    if transform.is_empty:
        return []
    return ["", *_table(rows), "", click.style("good: a server of this version takes it", fg="green")]


def subject_lines(explanation: Explanation, dialect: Dialect) -> list[str]:
    """One subject: the result and how each of its tokens came to be, or why there is none."""
    subject = _text(explanation.subject)
    if explanation.mismatch is not None:
        return ["", f"{subject} → {click.style('no match', fg='red')}: {explanation.mismatch.reason}"]
    result = explanation.result or b""
    rows: list[tuple[str, ...]] = [("#", "token", "becomes", "how")]
    rows += [
        (str(at), _text(token.token), _text(token.result), _how(token))
        for at, token in enumerate(explanation.tokens, 1)
    ]
    lines = ["", f"{subject} → {click.style(_text(result), fg='green', bold=True)}", "", *_table(rows)]
    if not is_valid_publish(result):
        fate = (
            "republish drops it, ingress transforms store it"
            if dialect.republish_suppresses_invalid_subject
            else "servers of this version use it all the same"
        )
        lines += ["", click.style(f"warning: the result is not a valid subject; {fate}", fg="yellow")]
    return lines


def _how(token: TokenOrigin) -> str:
    inputs = " and ".join(_input(item) for item in token.inputs)
    match token.function:
        case "literal":
            return "as it is written"
        case ">":
            copied = _tokens_range([item.position for item in token.inputs if item.position])
            return f"the rest of the subject: {copied}"
        case "wildcard":
            return inputs
        case "partition":
            key = _text(b"".join(item.value for item in token.inputs))
            hashed = f"FNV-1a of '{key}' is {token.hash}"
            return f"{inputs}; {hashed}, modulo {token.modulus} is {_text(token.result)}"
        case "random":
            return f"a random number below {token.arguments['n']}, another one next time"
        case "split":
            return f"{inputs}, split on '{token.arguments['delimiter']}'"
        case other:
            how = _LENGTHS[other].format(n=token.arguments["n"])
            unchanged = b"".join(item.value for item in token.inputs) == token.result
            return f"{inputs}, {how}{' (unchanged: that is all of it, or nothing)' if unchanged else ''}"


def _plan(part: Part) -> str:
    """As `_how`, before there is a subject."""
    inputs = " and ".join(
        _place(index, position + 1) for index, position in zip(part.indexes, part.positions, strict=False)
    )
    match part.kind:
        case Kind.LITERAL:
            return "as it is written"
        case Kind.REST:
            return f"the rest of the subject, from token {part.positions[0] + 1} on"
        case Kind.WILDCARD:
            return inputs
        case Kind.PARTITION:
            return f"hash of {inputs or 'the entire subject'}, modulo {part.number % 2**32}"
        case Kind.RANDOM:
            return f"a random number below {part.number}"
        case Kind.SPLIT:
            return f"{inputs}, split on '{_text(part.delimiter)}'"
        case kind:
            return f"{inputs}, {_LENGTHS[kind.value].format(n=part.number)}"


def _input(item: Input) -> str:
    if item.index is None or item.position is None:
        return "the entire subject"
    return f"{_place(item.index, item.position)} '{_text(item.value)}'"


def _place(index: int, position: int) -> str:
    # Index 0 and negative ones mean the first token, whatever it is (all servers).
    return f"wildcard {index} (token {position})" if index > 0 else f"index {index}, which means token {position}"


def _tokens_range(positions: list[int]) -> str:
    if len(positions) == 1:
        return f"token {positions[0]}"
    return f"tokens {positions[0]} to {positions[-1]}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    return [click.style(lines[0], dim=True), *lines[1:]]


def _text(raw: bytes) -> str:
    """For a screen: what is not UTF-8, and control characters, are escaped."""
    text = raw.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
