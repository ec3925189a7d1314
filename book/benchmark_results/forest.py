"""Draws ratios with their intervals beside their goals, as an SVG in the colors of the figures."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

TICKS = (0.25, 0.5, 1, 2)  # the ratio as a part of its goal
ENDS = TICKS[0] / 1.2, TICKS[-1] * 1.2  # what is beyond the scale is put at its end
INK, PALE, PAPER, GOOD = "#1b2430", "#d5dae0", "#fcfcfa", "#f1f8fd"
# Shapes differ as well as colors; what is inconclusive is hollow.
MARKS = {"met": ("o", "#0072b2"), "missed": ("D", "#b04600"), "inconclusive": ("s", "#56606c")}
STYLE: Any = {
    "svg.hashsalt": "d2l_mgpu",  # the same bytes for the same results
    "svg.fonttype": "none",  # letters of the reader's fonts, for not every font has all
    "text.parse_math": False,
    "text.color": INK,
    "font.size": 10.5,
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


def mark(verdict: str) -> dict[str, Any]:
    """The shape of a verdict."""
    shape, color = MARKS[verdict]
    inside = PAPER if verdict == "inconclusive" else color
    look = {"markerfacecolor": inside, "markersize": 8, "markeredgewidth": 1.5}
    return {"marker": shape, "color": color, "linestyle": "none"} | look


def figure(bars: Sequence[Bar], words: Words) -> Figure:
    """Each bar is a line of height 1: its title with the numbers, below them the interval."""
    sheet = Figure((7.3, 0.52 * len(bars) + 1.1), facecolor=PAPER)
    axes = sheet.add_axes(
        (0.05, 0.7 / sheet.get_figheight(), 0.9, 1 - 1.1 / sheet.get_figheight()),
        xscale="log",
        xlim=ENDS,
        ylim=(len(bars), 0),
        facecolor=PAPER,
        frame_on=False,
    )
    axes.axvspan(ENDS[0], 1, color=GOOD)
    axes.set_xticks(TICKS, words.ticks)
    axes.set_xticks([], minor=True)
    axes.set_yticks([])
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(color=PALE)
    place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "weight": "bold"}
    axes.text(0.97, 1.02, f"◂ {words.better}", ha="right", **place)
    axes.text(1.03, 1.02, f"{words.worse} ▸", **place)
    place = {"transform": axes.get_yaxis_transform(), "va": "baseline"}
    for line, bar in enumerate(bars):
        axes.text(0, line + 0.45, bar.title, **place)
        axes.text(1, line + 0.45, bar.text, ha="right", weight="bold", **place)
        low, value, high = (min(max(x, ENDS[0]), ENDS[1]) for x in (bar.low, bar.value, bar.high))
        axes.vlines(1, line + 0.55, line + 0.95, color=INK, linewidth=1.5)  # not through the title
        axes.plot([low, high], [line + 0.75] * 2, color=MARKS[bar.verdict][1], linewidth=2.25)
        axes.plot(value, line + 0.75, **mark(bar.verdict))
    legend = [axes.plot([], [], label=text, **mark(name))[0] for name, text in words.legend.items()]
    axes.legend(
        handles=legend,
        ncols=3,
        loc="upper left",
        bbox_to_anchor=(0, -0.25 / sheet.get_figheight()),
        frameon=False,
    )
    return sheet


def drawn(bars: Sequence[Bar], words: Words) -> str:
    """The picture as an SVG."""
    file = io.StringIO()
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # readers' fonts have it
        figure(bars, words).savefig(file, format="svg", metadata={"Date": None})
    return re.sub('font-family: [^;"]*', "font-family: system-ui, sans-serif", file.getvalue())
