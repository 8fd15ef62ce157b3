"""The figures of a report over several runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator, PercentFormatter

from eval.report.axes import LEAST_SHARE, WHOLE_SHARE, limits, share_label
from eval.report.family_rows import family_rows
from eval.report.svg import INK, MUTED, SERIES, drawing, to_svg
from eval.statistics import SHARE, Interval, Range
from eval.variants import Variant

_WIDE = 9.6  # inches
_SMOOTH = 5


def learning_figure(variants: Sequence[Variant], metric: str) -> Markup:
    """Draws a metric over updates: runs thin, the mean of a variant thick, its 95 % interval as a band."""
    with drawing(_WIDE, 3.2) as figure:
        axes = figure.add_subplot()
        for variant, colour in _coloured(variants):
            for run in variant.runs:
                axes.plot(*run.series(metric), color=colour, linewidth=0.6, alpha=0.3)
            updates, intervals = variant.curve(metric, _SMOOTH, SHARE)
            label = f"{variant.label}, {len(variant.runs)} seed{'s' * (len(variant.runs) > 1)}"
            axes.plot(updates, [i.mean for i in intervals], color=colour, linewidth=2.0, label=label)
            _band(axes, updates, intervals, colour)
        axes.set_ylim(*WHOLE_SHARE)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("update")
        _legend(axes, len(variants))
        return to_svg(
            figure,
            "learning",
            "Success of the rollouts over updates: mean of each variant, 95 % interval over seeds",
        )


def small_figure(
    variants: Sequence[Variant], metric: str, title: str, name: str, within: Range | None = None
) -> Markup:
    """Draws a metric with values `within` a range for every variant that logged it, with bands over seeds."""
    share = within == SHARE
    with drawing(3.7, 2.1) as figure:
        axes = figure.add_subplot()
        drawn: list[float | None] = []
        for variant, colour in _coloured(variants):
            updates, intervals = variant.curve(metric, _SMOOTH, within)
            axes.plot(updates, [i.mean for i in intervals], color=colour, linewidth=1.8)
            _band(axes, updates, intervals, colour)
            drawn += [end for i in intervals for end in (i.lo, i.mean, i.hi)]
        axes.set_ylim(*limits(drawn, least=LEAST_SHARE if share else None, within=within))
        if share:
            axes.yaxis.set_major_formatter(share_label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        return to_svg(figure, name, f"{title} over updates, one colour per variant")


def families_figure(variants: Sequence[Variant], families: Sequence[str]) -> Markup:
    """Draws the latest held-out success per family: each variant's mean, its interval, and every seed."""
    rows = [None, *families]
    step = 0.7 / max(len(variants), 1)
    with drawing(_WIDE, 0.8 + len(rows) * max(0.4, 0.2 * len(variants))) as figure:
        axes = figure.add_subplot()
        for number, (variant, colour) in enumerate(_coloured(variants)):
            for at, family in enumerate(rows):
                interval = variant.held_out("after", family)
                if interval is None:
                    continue
                y = at + (number - (len(variants) - 1) / 2) * step
                if interval.lo is not None:
                    axes.hlines(y, interval.lo, interval.hi, color=colour, linewidth=1.6)
                seeds = [
                    run.after.per_family[family].rate if family else run.after.success
                    for run in variant.runs
                    if run.after and (family is None or family in run.after.per_family)
                ]
                axes.scatter(seeds, [y] * len(seeds), s=16, color=colour, alpha=0.45, linewidth=0)
                label = variant.label if at == 0 else None
                axes.scatter([interval.mean], [y], s=42, color=colour, zorder=3, label=label)
        family_rows(axes, ["all tasks", *families])
        _legend(axes, len(variants))
        return to_svg(
            figure, "families", "Held-out success per family after training, mean and interval over seeds"
        )


def phases_figure(labels: Sequence[str], phases: Sequence[tuple[str, Sequence[float]]]) -> Markup:
    """Draws where the time went: a bar a run, minutes stacked by phase."""
    with drawing(_WIDE, 0.9 + 0.36 * len(labels)) as figure:
        axes = figure.add_subplot()
        left = np.zeros(len(labels))
        for (phase, minutes), colour in zip(phases, [*SERIES, MUTED], strict=False):
            axes.barh(range(len(labels)), minutes, left=left, height=0.62, color=colour, label=phase)
            left += np.array(minutes)
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlabel("minutes")
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        _legend(axes, 7)
        return to_svg(figure, "phases", "Minutes of each run by phase")


def _coloured(variants: Sequence[Variant]) -> list[tuple[Variant, str]]:
    """Each variant with its colour; past the sixth they repeat."""
    return [(variant, SERIES[i % len(SERIES)]) for i, variant in enumerate(variants)]


def _band(axes, updates: Sequence[int], intervals: Sequence[Interval], colour: str) -> None:
    """Draws intervals over updates; a gap where there is none."""
    ends = [np.array([getattr(i, end) for i in intervals], dtype=float) for end in ("lo", "hi")]
    axes.fill_between(updates, *ends, color=colour, alpha=0.16, linewidth=0)


def _legend(axes, columns: int) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=min(columns, 7), borderpad=0, handlelength=1.2
    )
