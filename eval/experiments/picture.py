"""Pictures of sweeps and ablations, as SVG and PNG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eval.experiments.points import typed
from eval.report.axes import LEAST_SHARE, WHOLE_SHARE, limits
from eval.statistics import DIFFERENCE, SHARE, Interval, Range, student

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
_MEANS = (
    "Grey: runs. Blue: their mean; line: Student's 95 % interval over seeds, where two or more differ: "
    "what other training runs would give on these tasks."
)
_LETTERS = 17  # of a caption, per inch
_BESIDE = 0.12  # runs left, their mean right of the tick
_BELOW = 0.22  # the same in rows
_COLUMNS = 4
_FEW = 12  # more distinct numbers than this are an axis, not categories


@dataclass(frozen=True)
class Dots:
    """Runs over one option.

    Attributes:
        x: Place of each run's value on the axis.
        y: The metric.
        seeds: Of each run.
        ticks: Name of each place, if the option is drawn as categories; else the axis is numeric.
        log: A numeric axis over more than two decades.
    """

    x: Sequence[float]
    y: Sequence[float]
    seeds: Sequence[int]
    ticks: Sequence[str] | None
    log: bool = False

    @classmethod
    def of(cls, runs: Sequence[tuple[Any, float, int]]) -> Dots:
        """Chooses the axis for runs, each (value of the option, metric, seed).

        Words, and few distinct numbers, are categories: numbers in order, words in that of the file.
        """
        values, y, seeds = ([run[i] for run in runs] for i in range(3))
        numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
        distinct = sorted(set(values)) if numeric else list(dict.fromkeys(map(typed, values)))
        if numeric and len(distinct) > _FEW:
            wide = min(values) > 0 and max(values) / min(values) > 100
            return cls(values, y, seeds, None, log=wide)
        places = {value: i for i, value in enumerate(distinct)}
        x = [places[value if numeric else typed(value)] for value in values]
        return cls(x, y, seeds, [typed(value) for value in distinct])

    def means(self, within: Range | None) -> dict[float, Interval]:
        """Returns place → mean of its runs with the interval over seeds; nothing on a numeric axis.

        A seed counts once: its runs, which differ in other options, are averaged first.

        Args:
            within: Range of the metric.
        """
        by_place: dict[float, dict[int, list[float]]] = {}
        for x, y, seed in zip(self.x, self.y, self.seeds, strict=True):
            by_place.setdefault(x, {}).setdefault(seed, []).append(y)
        if self.ticks is None:
            return {}
        return {
            place: student([float(np.mean(values)) for values in by_seed.values()], within)
            for place, by_seed in sorted(by_place.items())
        }


def effects(title: str, metric: str, panels: Mapping[str, Dots], within: Range | None) -> Figure:
    """Draws one panel per option: every run a dot, and the mean of the runs that share the value.

    Args:
        title: Of the picture.
        metric: Its name.
        panels: Option → runs.
        within: Range of the metric (None: any); shares are drawn on the whole of it.
    """
    drawn = [y for dots in panels.values() for y in dots.y]
    drawn += [end for dots in panels.values() for i in dots.means(within).values() for end in (i.lo, i.hi)]
    columns = min(_COLUMNS, max(1, len(panels)))
    rows = -(-max(1, len(panels)) // columns)
    height = 2.9 + 0.05 * max(map(_turned, panels.values()), default=0)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(4.6, 3.1 * columns), height * rows + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=11)
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (name, dots) in zip(grid.flat, panels.items(), strict=False):
            _panel(axes, name, dots, within)
        for axes in grid[:, 0]:
            axes.set_ylabel(metric)
            axes.set_ylim(*(WHOLE_SHARE if within == SHARE else limits(drawn)))
        ends = f" It ends at {within[0]:g} and {within[1]:g}." if within else ""
        _caption(figure, _MEANS + ends)
        return figure


def _caption(figure: Figure, text: str) -> None:
    """Writes below the figure, in as many lines as its width needs."""
    lines = textwrap.wrap(text, int(_LETTERS * figure.get_figwidth()))
    figure.supxlabel("\n".join(lines), fontsize=8, color=MUTED)


def _turned(dots: Dots) -> int:
    """Letters of the longest name, if the names are so long that they are turned; else 0."""
    longest = max(map(len, dots.ticks or ()), default=0)
    return longest if longest > 8 and len(dots.ticks) > 2 else 0


def _panel(axes: Any, name: str, dots: Dots, within: Range | None) -> None:
    axes.set_xlabel(name)
    axes.grid(visible=False, axis="x")
    if dots.ticks is None:
        axes.scatter(dots.x, dots.y, s=16, color=MUTED, alpha=0.55, linewidth=0)
        axes.set_xscale("log" if dots.log else "linear")
        return
    axes.scatter([x - _BESIDE for x in dots.x], dots.y, s=16, color=MUTED, alpha=0.55, linewidth=0)
    for place, mean in dots.means(within).items():
        if mean.lo is not None:
            axes.vlines(place + _BESIDE, mean.lo, mean.hi, color=BLUE, linewidth=1.6)
        axes.scatter([place + _BESIDE], [mean.mean], s=34, color=BLUE, zorder=3)
    turn = bool(_turned(dots))
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
    """Draws rows of intervals of success side by side, one panel for each of `sides`.

    The panel `zero` shows differences and has a line at 0; the others show shares, on the whole of [0, 1].
    """
    names = [row.name for row in next(iter(sides.values()))]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 1.6 + 0.42 * len(names)), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=11)
        places = {name: i for i, name in enumerate(names)}
        for axes, (label, rows) in zip(
            figure.subplots(1, len(sides), sharey=True), sides.items(), strict=True
        ):
            for row in rows:
                y = places[row.name]
                axes.scatter(
                    row.dots, [y + _BELOW] * len(row.dots), s=14, color=MUTED, alpha=0.6, linewidth=0
                )
                if row.lo is not None and row.hi is not None:
                    axes.plot((row.lo, row.hi), (y, y), color=BLUE, linewidth=1.6)
                axes.scatter([row.mean], [y], s=34, color=BLUE, zorder=3)
            if label == zero:
                axes.axvline(0.0, color=ORANGE, linewidth=1.0)
                drawn = [0.0, *(x for row in rows for x in (*row.dots, row.lo, row.hi))]
                axes.set_xlim(*limits(drawn, least=LEAST_SHARE, within=DIFFERENCE))
            else:
                axes.set_xlim(*WHOLE_SHARE)
            axes.set_xlabel(label)
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.grid(visible=False, axis="y")
        _caption(figure, f"{_MEANS} It ends at 0 and 1, that of a difference at −1 and 1.")
        return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `path` with .svg and .png in place of its suffix; the same figure gives the same bytes."""
    with matplotlib.rc_context(_STYLE):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
    return [path.with_suffix(".svg"), path.with_suffix(".png")]
