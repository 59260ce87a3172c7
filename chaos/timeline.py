"""The run as a picture: faults as bands, throughput and lag as lines, violations as marks; one self-contained page."""

from __future__ import annotations

import html
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.findings import Judgement
from chaos.history import read_history
from chaos.plan import RULES
from chaos.story import CLEAN_STOP, Story

__all__ = ["timeline"]

_WIDTH, _LEFT, _RIGHT = 1200, 130, 20
_ROW, _GAP, _BAND = 84, 16, 15
_STEP = 1.0  # seconds of one point of a line
_COLOURS = {
    "sidecar": "#d1495b",
    "network": "#edae49",
    "connections": "#edae49",
    "witness": "#c98f2b",
    "server": "#30638e",
    "all": "#16324f",
    "lame": "#5a87b0",
    "stream": "#6a4c93",
    "meta": "#8a6fb0",
    "consumer": "#2a9d8f",
    "target": "#70a288",
    "messages": "#9a9a9a",
    "source": "#9a9a9a",
    "configuration": "#e76f9a",
}
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem; color: #222; background: #fff; }
svg { max-width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #333; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .15rem .7rem; border-bottom: 1px solid #ddd;
text-align: right; } td:first-child, th:first-child { text-align: left; } .bad { color: #b00020; font-weight: 600; }
"""


@dataclass(slots=True)
class _Line:
    """What came out for one rule, as a number that only grows, and what it was to become."""

    done: list[tuple[float, float]] = field(default_factory=list)
    wanted: list[tuple[float, float]] = field(default_factory=list)

    def rates(self, end: float) -> list[tuple[float, float]]:
        """Messages a second, second by second."""
        times = [number * _STEP for number in range(int(end / _STEP) + 1)]
        values = [_at(self.done, time) for time in times]
        return [
            (time, max(0.0, after - before) / _STEP)
            for time, before, after in zip(times[1:], values, values[1:], strict=False)
        ]

    def lag(self, end: float) -> list[tuple[float, float]]:
        """How many messages were still to come, second by second."""
        times = [number * _STEP for number in range(int(end / _STEP) + 1)]
        return [(time, max(0.0, _at(self.wanted, time) - _at(self.done, time))) for time in times]


def timeline(history: Path, story: Story, judgements: Sequence[Judgement]) -> str:
    """An HTML page.

    Args:
        history: the run's history.
        story: the story in it.
        judgements: the checker's.
    """
    lines = _lines(history)
    rules = [judgement for judgement in judgements if judgement.rule in lines]
    faults = sorted(story.disturbances, key=lambda each: each.begin)
    kinds = list(dict.fromkeys(each.kind for each in faults))
    top = len(kinds) * _BAND + 30
    height = top + len(rules) * (_ROW + _GAP) + 30
    end = max(story.end, 1.0)

    def x(at: float) -> float:
        return round(_LEFT + at / end * (_WIDTH - _LEFT - _RIGHT), 1)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline of the run">']
    for row, kind in enumerate(kinds):
        y = 18 + row * _BAND
        colour = _COLOURS.get(kind.split()[0], "#888")
        parts.append(f'<text x="4" y="{y + 10}">{html.escape(kind)}</text>')
        for each in (each for each in faults if each.kind == kind):
            width = max(2.0, x(each.end) - x(each.begin))
            reported = f"{kind}, {each.begin:.1f} to {each.end:.1f} s"
            parts.append(
                f'<rect x="{x(each.begin)}" y="{y}" width="{width:.1f}" height="{_BAND - 3}" fill="{colour}">'
                f"<title>{html.escape(reported)}</title></rect>"
            )
            if kind != CLEAN_STOP:
                parts.append(
                    f'<rect x="{x(each.begin)}" y="{top}" width="{width:.1f}" height="{height - top - 30}"'
                    f' fill="{colour}" opacity="0.07"/>'
                )
    for number, judgement in enumerate(rules):
        parts += _panel(judgement, lines[judgement.rule], top + number * (_ROW + _GAP), end, x)
    parts += [
        f'<line x1="{x(at)}" x2="{x(at)}" y1="{height - 28}" y2="{height - 22}" stroke="#333"/>'
        f'<text x="{x(at)}" y="{height - 8}" text-anchor="middle">{at:.0f} s</text>'
        for at in _ticks(end)
    ]
    parts.append("</svg>")
    run = story.run
    title = f"chaos, seed {run.get('seed')}, {run.get('topology')} of {run.get('version')}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>{html.escape(title)}</h1>'
        "<p>Faults as bands; per rule, what came out a second (blue) and what was still to come (orange); violations as"
        f" red marks.</p>{''.join(parts)}{_table(judgements)}</html>\n"
    )


def _panel(judgement: Judgement, line: _Line, top: float, end: float, x: object) -> list[str]:
    assert callable(x)
    rates, lag = line.rates(end), line.lag(end)
    most, worst = max((v for _, v in rates), default=0.0), max((v for _, v in lag), default=0.0)
    bottom = top + _ROW
    parts = [
        f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_ROW}" fill="none" stroke="#ccc"/>',
        f'<text x="4" y="{top + 14}" style="font-weight:600">{html.escape(judgement.rule)}</text>',
        f'<text x="4" y="{top + 28}">{html.escape(judgement.promise)}</text>',
        f'<text x="4" y="{top + 44}" style="fill:#30638e">up to {most:.0f} /s</text>',
    ]
    if line.wanted:
        parts.append(f'<text x="4" y="{top + 58}" style="fill:#d17a00">lag up to {worst:.0f}</text>')
    for points, peak, colour in ((rates, most, "#30638e"), (lag, worst, "#d17a00")):
        if peak:
            path = " ".join(f"{x(at)},{bottom - value / peak * (_ROW - 6):.1f}" for at, value in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
    for finding in judgement.violations:
        at = x(end if finding.at is None else min(max(finding.at, 0.0), end))
        reported = html.escape(f"{finding.what}: {finding.detail}")
        parts.append(
            f'<path d="M{at - 5},{top + 2} L{at + 5},{top + 2} L{at},{top + 12} Z" fill="#b00020">'
            f"<title>{reported}</title></path>"
        )
    return parts


def _table(judgements: Sequence[Judgement]) -> str:
    rows = [
        f"<tr><td>{html.escape(each.rule)}<td>{html.escape(each.promise)}<td>{each.expected}<td>{each.seen}"
        f'<td class="{"bad" if each.violations else ""}">{len(each.violations)}'
        f"<td>{html.escape(', '.join(f'{count} {name}' for name, count in sorted(each.counts.items())))}"
        for each in judgements
    ]
    return f"<table><tr><th>rule<th>promise<th>expected<th>seen<th>violations<th>found{''.join(rows)}</table>"


def _lines(history: Path) -> dict[str, _Line]:
    """Per rule, from the samples: what its target holds or its subscriber received, and what its sources hold."""
    lines = {rule.name: _Line() for rule in RULES}
    known: dict[str, int] = {}
    stored = 0
    for event in read_history(history):
        at = float(event["t"])
        if event["event"] == "stored" and event["to"] == "events":
            stored += len(event["rows"])
        elif event["event"] == "sample":
            # A stream without a leader at this moment keeps its last state.
            known |= {name: end for name, (_, end) in event["streams"].items()}
            for rule in RULES:
                line = lines[rule.name]
                ends = [known.get(name, 0) for name in (*rule.sources, rule.target)]
                if rule.kind == "republish" and rule.name in event["received"]:
                    line.done.append((at, event["received"][rule.name][1]))
                    line.wanted.append((at, ends[0]))
                elif rule.kind == "subject_transform":
                    line.done.append((at, ends[-1]))
                    line.wanted.append((at, stored))
                elif rule.target in known:
                    line.done.append((at, ends[-1]))
                    if rule.kind in ("sources", "mirror"):  # of the others, some messages rightly never come
                        line.wanted.append((at, sum(ends[:-1])))
    return {name: line for name, line in lines.items() if line.done}


def _at(points: Sequence[tuple[float, float]], time: float) -> float:
    place = bisect_right(points, (time, float("inf")))
    return points[place - 1][1] if place else 0.0


def _ticks(end: float) -> list[float]:
    step = next((step for step in (5, 10, 30, 60, 120, 300) if end / step <= 14), 600)
    return [float(at) for at in range(0, int(end) + 1, step)]
