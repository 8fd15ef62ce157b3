"""Pictures of sweeps and ablations, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eval.experiments.points import typed

INK, MUTED, LINE, BLUE, ORANGE = "#1c2330", "#5d6675", "#d8dce3", "#2563b0", "#c2570c"
_STYLE = {
    "svg.hashsalt": "sibling",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}
_COLUMNS = 4
_FEW = 12  # more distinct numbers than this are an axis, not categories


@dataclass(frozen=True)
class Dots:
    """Points over one option.

    Attributes:
        x: Place of each value on the axis.
        y: The metric.
        ticks: Name of each place, if the option is drawn as categories; else the axis is numeric.
        log: A numeric axis over more than two decades.
    """

    x: Sequence[float]
    y: Sequence[float]
    ticks: Sequence[str] | None
    log: bool = False

    @classmethod
    def of(cls, pairs: Sequence[tuple[Any, float]]) -> Dots:
        """Chooses the axis: categories for words and for few distinct numbers."""
        values = [x for x, _ in pairs]
        y = [value for _, value in pairs]
        numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
        distinct = sorted(set(values)) if numeric else list(dict.fromkeys(map(typed, values)))
        if numeric and len(distinct) > _FEW:
            wide = min(values) > 0 and max(values) / min(values) > 100
            return cls(values, y, None, log=wide)
        places = {value: i for i, value in enumerate(distinct)}
        x = [places[value if numeric else typed(value)] for value in values]
        return cls(x, y, [typed(value) for value in distinct])


def effects(title: str, metric: str, panels: Mapping[str, Dots]) -> Figure:
    """Draws one panel an option: every run a dot, and the mean of the runs that share the value."""
    columns = min(_COLUMNS, max(1, len(panels)))
    rows = -(-max(1, len(panels)) // columns)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(4.6, 3.1 * columns), 2.9 * rows + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=11)
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (name, dots) in zip(grid.flat, panels.items(), strict=False):
            _panel(axes, name, dots)
        for axes in grid[:, 0]:
            axes.set_ylabel(metric)
        return figure


def _panel(axes: Any, name: str, dots: Dots) -> None:
    axes.scatter(dots.x, dots.y, s=16, color=MUTED, alpha=0.55, linewidth=0)
    axes.set_xlabel(name)
    axes.grid(visible=False, axis="x")
    if dots.ticks is None:
        axes.set_xscale("log" if dots.log else "linear")
        return
    x, y = np.asarray(dots.x), np.asarray(dots.y)
    places = sorted(set(dots.x))
    axes.plot(places, [y[x == place].mean() for place in places], color=BLUE, marker="o", linewidth=1.6)
    turn = max(map(len, dots.ticks)) > 8 and len(dots.ticks) > 2
    axes.set_xticks(
        range(len(dots.ticks)), dots.ticks, rotation=35 if turn else 0, ha="right" if turn else "center"
    )
    axes.set_xlim(-0.5, len(dots.ticks) - 0.5)


@dataclass(frozen=True)
class Whisker:
    """One row of a forest plot: its name, a dot a seed, the mean and its interval (None: one seed)."""

    name: str
    dots: Sequence[float]
    mean: float
    lo: float | None
    hi: float | None


def forest(title: str, sides: Mapping[str, Sequence[Whisker]], zero: str) -> Figure:
    """Draws rows of intervals side by side, one panel for each of `sides`; `zero` has a line at 0."""
    names = [row.name for row in next(iter(sides.values()))]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 1.3 + 0.42 * len(names)), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=11)
        places = {name: i for i, name in enumerate(names)}
        for axes, (label, rows) in zip(
            figure.subplots(1, len(sides), sharey=True), sides.items(), strict=True
        ):
            for row in rows:
                y = places[row.name]
                axes.scatter(row.dots, [y] * len(row.dots), s=14, color=MUTED, alpha=0.6, linewidth=0)
                if row.lo is not None and row.hi is not None:
                    axes.plot((row.lo, row.hi), (y, y), color=BLUE, linewidth=1.6)
                axes.scatter([row.mean], [y], s=34, color=BLUE, zorder=3)
            if label == zero:
                axes.axvline(0.0, color=ORANGE, linewidth=1.0)
            axes.set_xlabel(label)
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.grid(visible=False, axis="y")
        return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `path` with .svg and .png in place of its suffix; the same figure gives the same bytes."""
    with matplotlib.rc_context(_STYLE):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
    return [path.with_suffix(".svg"), path.with_suffix(".png")]
