"""Renders a sidecar's state as text: a heading, a table of the rules, and below each its problem."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from nats_bridge.observability.printable import printable

_COLOURS: Final = {"ready": "green", "standby": "cyan", "failed": "red", "wedged": "red"}
_RUNNING = ("ready", "standby")
_LATE = 60.0  # seconds behind that are marked
_GAP = "  "
_LEAST_NAME = 12  # characters


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table. On a narrow screen the columns with the least weight are left out."""

    title: str
    text: Callable[[Mapping[str, Any]], str]
    weight: int
    right: bool = True
    colour: Callable[[Mapping[str, Any]], str | None] = lambda _: None


def _measure(rule: Mapping[str, Any], name: str) -> Any:
    return (rule.get("measures") or {}).get(name)


def _condition(rule: Mapping[str, Any]) -> str:
    return str(rule.get("condition") or rule.get("state") or "?")


def _leader(rule: Mapping[str, Any]) -> str:
    leads = rule.get("leader")
    return "-" if leads is None else "yes" if leads else "no"


def _behind(rule: Mapping[str, Any]) -> str:
    """Return the lag.

    For a stalled rule it includes messages in flight; for a `watch` rule it is the missing copies.
    """
    if "copies" in rule:
        return count(sum(copy["missing"] or 0 for copy in rule["copies"]))
    messages, seconds = _measure(rule, "lag_messages"), _measure(rule, "lag_seconds")
    held = 0 if _condition(rule) in _RUNNING else _measure(rule, "in_flight") or 0
    has_lag = rule.get("measures") and rule.get("reads_stream", True) and _condition(rule) != "standby"
    if messages is None and not has_lag:
        return "-"
    least = (messages or 0) + held
    reported = count(least) if messages is not None else f">={count(least)}" if least else "?"
    return f"{reported} ({duration(seconds)})" if least and seconds else reported


def _latency(rule: Mapping[str, Any]) -> str:
    found = _measure(rule, "end_to_end_ms")
    return f"{milliseconds(found['p50'])} / {milliseconds(found['p99'])}" if found else "-"


_COLUMNS: Final = (
    _Column("STATE", _condition, 9, right=False, colour=lambda rule: _COLOURS.get(_condition(rule), "yellow")),
    _Column("LEADER", _leader, 3, right=False),
    _Column("IN", lambda rule: per_second(_measure(rule, "rate_in")), 7),
    _Column("OUT", lambda rule: per_second(_measure(rule, "rate_out")), 8),
    _Column(
        "BEHIND", _behind, 6, colour=lambda rule: "yellow" if (_measure(rule, "lag_seconds") or 0) >= _LATE else None
    ),
    _Column("LATENCY P50 / P99", _latency, 5),
)


_SOMETIMES: Final = {"LEADER": "leader"}
"""Columns that are shown only if a rule has this member."""


def status_lines(document: Mapping[str, Any], width: int) -> list[str]:
    """Return the whole state.

    Args:
        document: the answer to `GET /status`.
        width: columns of the screen; no line is longer.
    """
    return [*_heading_lines(document, width), "", *_rule_lines(document, width)]


def _heading_lines(document: Mapping[str, Any], width: int) -> list[str]:
    """Return the sidecar itself, its connections and its configuration."""
    state, colour = ("ready", "green") if document["ready"] else ("not ready", "red")
    if document.get("draining"):
        state, colour = "draining", "yellow"
    about = f"nats-bridge {document.get('version', '')}, up {duration(document.get('uptime_s'))}"
    name = printable(str(document.get("name", "")))
    lines = [_cut([(name, None), (" is ", None), (state, colour), (f" ({about})", None)], width)]
    for link in document.get("connections") or ():
        again = f", {link['reconnects']} reconnects" if link.get("reconnects") else ""
        wrong = f"; last error {link['last_error']}" if link.get("last_error") and not link["connected"] else ""
        text = printable(f"connection {link['name']}: {_server(link)}{again}{wrong}")
        lines.append(_cut([(text, None if link["connected"] else "red")], width))
        lines += [
            _cut([(f"  {printable(_failed_attempts(failed))}", None if link["connected"] else "red")], width)
            for failed in link.get("failed_attempts") or ()
        ]
        lines += [click.style(line, fg="yellow") for line in _wrapped(link.get("untested_server") or "", width)]
    config = document.get("config") or {}
    if config.get("path"):
        reload = config.get("last_reload")
        again = f", last reload {reload['result']} at {clock(reload['at'])}" if reload else ""
        refused = reload["reason"] if reload and reload["result"] == "refused" else None
        text = printable(f"configuration {config['path']}, loaded at {clock(config['loaded_at'])}{again}")
        lines.append(_cut([(text, "red" if refused else None)], width))
        lines += [click.style(line, fg="red") for line in _wrapped(f"refused: {refused}", width) if refused]
    return lines


def _server(link: Mapping[str, Any]) -> str:
    """Return the server of a connection, or those that it has not reached."""
    configured = ", ".join(link["servers"])
    if not link["connected"]:
        return f"not connected at {configured}"
    name = f" {link['server_name']}" if link.get("server_name") else ""
    return f"nats-server {link['server_version']}{name} at {link.get('server') or configured}"


def _failed_attempts(failed: Mapping[str, Any]) -> str:
    times = "once" if failed["count"] == 1 else f"{failed['count']} times"
    return f"{failed['server']} failed {times}, last at {clock(failed['at'])}: {failed['reason']}"


def _rule_lines(document: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the head of the table, and for every rule its line and its problems."""
    rules = document["rules"]
    if not rules:
        yield "no rules yet"
        return
    columns = [
        column
        for column in _COLUMNS
        if column.title not in _SOMETIMES or any(r.get(_SOMETIMES[column.title]) is not None for r in rules)
    ]
    texts = {column.title: [column.text(rule) for rule in rules] for column in columns}
    widths = {title: max(len(title), *map(len, cells)) for title, cells in texts.items()}
    longest = max(len("RULE"), *(len(printable(rule["name"])) for rule in rules))
    while columns and _least(columns, widths, longest) > width:
        columns.remove(min(columns, key=lambda column: column.weight))
    spare = width - sum(len(_GAP) + widths[column.title] for column in columns)
    name = max(min(longest, spare), 1)
    head = [_fit("RULE", name), *(_aligned(column.title, widths[column.title], column.right) for column in columns)]
    yield click.style(_GAP.join(head)[:width].rstrip(), dim=True)
    for at, rule in enumerate(rules):
        cells = [_fit(printable(rule["name"]), name)]
        for column in columns:
            cell = _aligned(texts[column.title][at], widths[column.title], column.right)
            cells.append(click.style(cell, fg=column.colour(rule)) if column.colour(rule) else cell)
        yield _GAP.join(cells)
        yield from _remarks(rule, width)
        yield from _stalled_copies(rule, width)


def _least(columns: Sequence[_Column], widths: Mapping[str, int], longest: int) -> int:
    return min(longest, _LEAST_NAME) + sum(len(_GAP) + widths[column.title] for column in columns)


def _remarks(rule: Mapping[str, Any], width: int) -> list[str]:
    remarks: list[tuple[str, str | None]] = []
    if rule.get("error"):
        remarks.append((f"failed: {rule['error']}", "red"))
    elif rule.get("wedged_s") is not None:
        remarks.append(
            (f"has messages in flight, waits for nothing, no progress for {duration(rule['wedged_s'])}", "red")
        )
    elif rule.get("waiting_for"):
        remarks.append((f"{_condition(rule)}: {rule['waiting_for']}", _COLOURS.get(_condition(rule), "yellow")))
    errors = rule.get("last_errors")
    known = rule.get("error") or rule.get("waiting_for")
    reason = (errors[-1].get("reason") if errors else "") or ""
    stalled = [copy["reason"]["text"] for copy in rule.get("copies") or () if copy["reason"]]
    if errors and reason not in stalled and not (known and known in reason):
        last = errors[-1]
        why = f": {last['reason']}" if last.get("reason") else ""
        remarks.append((f"last error {clock(last['at'])} {last['event']}{why}", None))
    return [_cut([("  " + printable(text), colour)], width) for text, colour in remarks]


def _stalled_copies(rule: Mapping[str, Any], width: int) -> list[str]:
    """Return lines for each stalled native mirror or source: since when, the reason, and the remedy."""
    lines: list[str] = []
    for copy in rule.get("copies") or ():
        if copy["condition"] == "stalled":
            missing = "messages are missing" if copy["missing"] is None else f"{count(copy['missing'])} missing"
            lag = ", although the server reports lag 0" if copy["reported_lag"] == 0 else ""
            stalled = f"stalled for {duration(copy['stalled_seconds'])}, {missing}{lag}"
            lines.append(_cut([("  " + printable(f"{copy['target']} <- {copy['source']}: {stalled}"), "red")], width))
            lines += _wrapped(f"likely: {copy['reason']['text']}", width, "    ")
            lines += _wrapped(f"remedy: {copy['reason']['remedy']}", width, "    ")
    return lines


def _aligned(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _fit(text: str, width: int) -> str:
    return (text if len(text) <= width else text[: max(width - 1, 0)] + "…"[:width]).ljust(width)


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    return textwrap.wrap(printable(text), max(width, len(indent) + 1), initial_indent=indent, subsequent_indent=indent)


def _cut(parts: Sequence[tuple[str, str | None]], width: int) -> str:
    """Join coloured parts into one line, cut at the screen's width."""
    line, left = "", width
    for text, colour in parts:
        if len(text) > left:
            text = _fit(text, left)
        line += click.style(text, fg=colour) if colour and text else text
        left -= len(text)
    return line


_UNITS = ((1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G"), (1e15, 1e12, "T"))
"""Upper bounds, divisors and unit letters."""


def count(value: float | None) -> str:
    """Format a number as `1,234`, `123k` or `4.5M`; `-` for None."""
    if value is None:
        return "-"
    if value >= 1e5:
        _, divisor, unit = next((each for each in _UNITS if value < each[0]), _UNITS[-1])
        scaled = value / divisor
        return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def per_second(value: float | None) -> str:
    """`1,234/s`."""
    return "-" if value is None else f"{count(value)}/s"


def milliseconds(value: float | None) -> str:
    """`0.4 ms`, `12 ms`, `3.4 s`."""
    if value is None:
        return "-"
    if value >= 1000:
        return duration(value / 1000)
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def duration(value: float | None) -> str:
    """`4.2 s`, `90 s`, `12 min`, `30 h`, `3 days`."""
    if value is None:
        return "-"
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    for limit, divisor, unit in ((7200, 60, "min"), (172_800, 3600, "h")):
        if value < limit:
            return f"{value / divisor:.0f} {unit}"
    return f"{value / 86_400:.0f} days"


def clock(text: object) -> str:
    """Format an RFC 3339 time as local time, with the day unless it is today."""
    try:
        at = datetime.fromisoformat(str(text)).astimezone()
    except ValueError:
        return str(text)
    same_day = at.date() == datetime.now(at.tzinfo).date()
    return at.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")
