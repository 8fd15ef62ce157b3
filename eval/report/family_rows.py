"""The layout that figures of success by task family share."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from eval.report.svg import INK, LINE


def family_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Lays out success rates with one row per label: the first (all tasks) in bold, a line at 0.5."""
    axes.axhline(0.5, color=LINE, linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(-0.01, 1.01)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
