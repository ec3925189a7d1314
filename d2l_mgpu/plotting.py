"""Plots that look the same on every page, and are the same bytes for the same
numbers."""

import sys
from collections.abc import Mapping, Sequence

# Okabe and Ito's palette, which color-blind readers can tell apart; line styles differ
# as well
STYLES = [("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":")]


def use_svg_display() -> None:
    """Let a notebook show figures as SVG, without what would differ from run to run:
    the date and random ids. Needs matplotlib, which is imported here."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "d2l_mgpu"
    ipython = sys.modules.get("IPython")
    if ipython and ipython.get_ipython():  # a script shows figures in its own way
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})


def plot(
    curves: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    x: Sequence[float] | None = None,
    log: bool = False,
) -> None:
    """Draw one curve per entry of `curves`, named in the legend, over `x` (default: 1,
    2, 3, ...), with `log` on logarithmic axes.

    In a notebook the figure is an SVG. Needs matplotlib, which is imported here.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    use_svg_display()
    _, axes = plt.subplots(figsize=(5, 3))
    for (label, y), (color, line) in zip(
        curves.items(), STYLES * len(curves), strict=False
    ):
        steps = range(1, len(y) + 1) if x is None else x
        axes.plot(steps, y, color=color, linestyle=line, label=label)
        if not log and all(isinstance(step, int) for step in steps):
            # there is no epoch 1.5
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if log:
        axes.loglog()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(color="0.9")
    axes.legend()
    plt.show()
