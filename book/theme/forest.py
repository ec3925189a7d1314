"""Draws ratios with their intervals beside their goals, as an SVG in the style of the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, LINE, TOP = 700, 40, 660, 50, 52
TICKS = (0.25, 0.5, 1, 2)  # the ratio as a part of its goal
STYLE = """
    .fig text { font-family: system-ui, sans-serif; font-size: 14px; fill: #1b2430; }
    .fig .title { paint-order: stroke; stroke: #f1f8fd; stroke-width: 4px; }
    .fig .end { text-anchor: end; }
    .fig .mid { text-anchor: middle; }
    .fig .bold { font-weight: 600; }
    .fig .page { fill: #fcfcfa; stroke: #d5dae0; }
    .fig .good { fill: #f1f8fd; }
    .fig .goal { stroke: #1b2430; stroke-width: 2; }
    .fig .tick { stroke: #d5dae0; }
    .fig .met { fill: #0072b2; stroke: #0072b2; }
    .fig .missed { fill: #b04600; stroke: #b04600; }
    .fig .inconclusive { fill: #fcfcfa; stroke: #56606c; }
    .fig .range { stroke-width: 3; }
    .fig .mark { stroke-width: 2; }"""
# Shapes differ as well as colors; each is drawn around (0, 0).
MARKS = {
    "met": "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0 -6 0z",
    "missed": "M0 -8L8 0L0 8L-8 0z",
    "inconclusive": "M-6 -6H6V6H-6z",
}


@dataclass(frozen=True)
class Bar:
    """A line of the picture; `value`, `low` and `high` are parts of the goal: 1 just meets it."""

    title: str
    text: str
    value: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class Words:
    """What stands around the lines, in the language of the page."""

    better: str
    worse: str
    legend: Mapping[str, str]  # for each verdict
    ticks: Sequence[str]


def place(value: float) -> float:
    """Where on the page a part of the goal is; what is beyond the scale is put at its end."""
    low, high = math.log(TICKS[0] / 1.2), math.log(TICKS[-1] * 1.2)
    part = (math.log(max(value, 1e-9)) - low) / (high - low)
    return round(LEFT + (RIGHT - LEFT) * min(max(part, 0), 1), 1)


def mark(verdict: str, x: float, y: float) -> str:
    return f'<path class="mark {verdict}" d="{MARKS[verdict]}" transform="translate({x} {y})"/>'


def line(bar: Bar, y: int) -> list[str]:
    """The title with the numbers, and below them the interval with its median."""
    ends = place(bar.low), place(bar.high)
    return [
        f'<text class="title" x="{LEFT}" y="{y}">{escape(bar.title)}</text>',
        f'<text class="end bold" x="{RIGHT}" y="{y}">{escape(bar.text)}</text>',
        f'<path class="range {bar.verdict}" d="M{ends[0]} {y + 18}H{ends[1]}"/>',
        mark(bar.verdict, place(bar.value), y + 18),
    ]


def drawn(bars: Sequence[Bar], words: Words) -> str:
    """The picture; `words` have to be escaped where they need to be."""
    bottom = TOP + LINE * len(bars)
    height, middle = bottom + 66, place(1)
    parts = [
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="12"/>',
        f'<rect class="good" x="{LEFT}" y="{TOP - 16}" width="{middle - LEFT}" '
        f'height="{bottom - TOP + 16}"/>',
        f'<text class="end bold" x="{middle - 10}" y="26">◂ {words.better}</text>',
        f'<text class="bold" x="{middle + 10}" y="26">{words.worse} ▸</text>',
    ]
    for value, text in zip(TICKS, words.ticks, strict=True):
        x, kind = place(value), "goal" if value == 1 else "tick"
        parts.append(f'<path class="{kind}" d="M{x} {TOP - 16}V{bottom}"/>')
        parts.append(f'<text class="mid" x="{x}" y="{bottom + 20}">{text}</text>')
    for i, bar in enumerate(bars):
        parts += line(bar, TOP + 6 + LINE * i)
    for i, (verdict, text) in enumerate(words.legend.items()):
        x = LEFT + 10 + 200 * i
        parts.append(mark(verdict, x, height - 20))
        parts.append(f'<text x="{x + 16}" y="{height - 15}">{text}</text>')
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">\n  <style>{STYLE}\n  </style>\n  {body}\n</svg>\n'
    )
