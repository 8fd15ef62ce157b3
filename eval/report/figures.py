"""The figures of a run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from eval.report.axes import LEAST_SHARE, WHOLE_SHARE, limits, share_label
from eval.report.family_rows import family_rows
from eval.report.group_view import GroupStep, Member
from eval.report.svg import BLUE, GREEN, INK, LINE, MUTED, ORANGE, PAPER, SERIES, drawing, to_svg
from eval.result import AttemptCounts, EvalResult
from eval.statistics import SHARE, Range

Curve = tuple[Sequence[int], Sequence[float]]
_SMOOTH = 5
_WIDE = 9.6  # inches


@dataclass(frozen=True)
class Plot:
    """One small plot of metrics over updates.

    Attributes:
        title: What it shows, with its unit.
        names: Metric → label; metrics that were not logged are left out.
        stacked: Parts of a whole, drawn as a stack.
        within: Range of its values, which neither an axis nor an interval leaves (None: any).
    """

    title: str
    names: Mapping[str, str]
    stacked: bool = False
    within: Range | None = None

    @property
    def share(self) -> bool:
        """Whether its values are shares, shown as percentages."""
        return self.within == SHARE


def smooth(values: Sequence[float]) -> np.ndarray:
    """Returns the centred moving mean over 5 points, [n] → [n]; fewer points count at the ends."""
    window = np.ones(min(_SMOOTH, len(values)))
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")


def success_figure(training: Curve, evals: Mapping[int, EvalResult]) -> Markup:
    """Draws the success rate of the trajectories trained on, and held-out success with its intervals."""
    with drawing(_WIDE, 2.9) as figure:
        axes = figure.add_subplot()
        updates, values = training
        if updates:
            axes.plot(updates, values, color=MUTED, linewidth=0.8, alpha=0.6)
            label = f"training tasks (mean of {_SMOOTH} updates)"
            axes.plot(updates, smooth(values), color=MUTED, linewidth=1.8, label=label)
        if evals:
            x = list(evals)
            rates = np.array([result.success for result in evals.values()])
            lo, hi = np.array([result.ci for result in evals.values()]).T
            style = {"color": BLUE, "marker": "o", "markersize": 5.5, "linewidth": 1.6, "capsize": 3}
            error = (rates - lo, hi - rates)
            axes.errorbar(x, rates, yerr=error, **style, label="held-out tasks, 95 % interval over tasks")
        _share_axis(axes)
        axes.set_xlabel("update")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if updates or evals:
            axes.legend(loc="upper left", ncols=2, bbox_to_anchor=(0, 1.14), borderpad=0, handlelength=1.6)
        return to_svg(figure, "success", "Success rate over updates, on training tasks and on held-out tasks")


def plot_figure(plot: Plot, curves: Mapping[str, Curve], name: str) -> Markup:
    """Draws one panel; `curves` holds the panel's metrics that were logged, at least one."""
    with drawing(3.7, 2.1) as figure:
        axes = figure.add_subplot()
        if plot.stacked:
            _stack(axes, plot, curves)
        else:
            for (metric, (updates, values)), colour in zip(curves.items(), SERIES, strict=False):
                dots = {"marker": "o", "markersize": 3} if len(values) < 3 else {}
                axes.plot(updates, values, color=colour, linewidth=0.8, alpha=0.5, **dots)
                axes.plot(updates, smooth(values), color=colour, linewidth=1.8, label=plot.names[metric])
            drawn = [value for _, values in curves.values() for value in values]
            least = LEAST_SHARE if plot.share else None
            axes.set_ylim(*limits(drawn, least=least, within=plot.within))
        if plot.share:
            axes.yaxis.set_major_formatter(share_label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        if len(curves) > 1:
            spacing = {"handlelength": 1.0, "columnspacing": 0.9, "handletextpad": 0.5, "borderpad": 0}
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, fontsize=8.5, **spacing)
        return to_svg(figure, name, f"{plot.title} over updates")


def family_figure(before: EvalResult | None, after: EvalResult | None) -> Markup:
    """Draws success per family with 95 % intervals over tasks, before and after training."""
    shown = [
        (result, label, colour, face, shift)
        for result, label, colour, face, shift in (
            (before, "before", ORANGE, PAPER, -0.15),
            (after, "after", BLUE, BLUE, 0.15),
        )
        if result is not None
    ]
    families = sorted({family for result, *_ in shown for family in result.per_family})
    rows = ["all tasks", *families]
    with drawing(_WIDE, 0.75 + 0.4 * len(rows)) as figure:
        axes = figure.add_subplot()
        for result, label, colour, face, shift in shown:
            counted_by = {"all tasks": result.overall, **result.per_family}
            _whiskers(axes, rows, counted_by, shift if len(shown) > 1 else 0.0, label, colour, face)
        family_rows(axes, rows)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderpad=0, handlelength=1.2)
        return to_svg(figure, "families", "Held-out success per family with 95 % intervals over tasks")


def match_figure(reference: Member, failed: Member, largest: float, name: str) -> Markup:
    """Draws two siblings as rows of steps, with a line from every credited step to the step it matched.

    Args:
        reference: Upper row.
        failed: Lower row.
        largest: |advantage| drawn at full strength.
        name: Of the figure in the page.
    """
    longest = max(len(reference.steps), len(failed.steps), 20)
    with drawing(_WIDE, 1.6) as figure:
        axes = figure.add_subplot()
        axes.axis("off")
        for step in failed.steps:
            if step.match is not None and step.match[0] == reference.index:
                weight = 0.8 + 2.7 * (step.credit or 0.0)
                axes.plot((step.t, step.match[1]), (0, 1), color=GREEN, linewidth=weight, alpha=0.7, zorder=1)
        for member, y in ((reference, 1), (failed, 0)):
            _dots(axes, member.steps, y, largest)
            word = "success" if member.success else "failure"
            axes.text(-1.0, y, f"{word} #{member.index}", ha="right", va="center", color=INK)
        axes.text(-1.0, -0.6, "step", ha="right", va="center", color=MUTED, fontsize=8.5)
        for t in range(0, longest, 5):
            axes.text(t, -0.6, str(t), ha="center", va="center", color=MUTED, fontsize=8.5)
        axes.set_xlim(-0.14 * longest, longest - 0.3)
        axes.set_ylim(-0.8, 1.3)
        label = (
            f"Steps of #{reference.index} above and of #{failed.index} below, coloured by advantage; lines "
            "join credited steps to the steps they matched"
        )
        return to_svg(figure, name, label)


def _share_axis(axes: Axes) -> None:
    axes.set_ylim(*WHOLE_SHARE)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _stack(axes: Axes, plot: Plot, curves: Mapping[str, Curve]) -> None:
    """Stacks the curves as bars, one per update; a part that was not logged in an update is 0 there."""
    updates = sorted({update for points, _ in curves.values() for update in points})
    bottom = np.zeros(len(updates))
    for (metric, (points, values)), colour in zip(curves.items(), SERIES, strict=False):
        logged = dict(zip(points, values, strict=True))
        height = np.array([logged.get(update, 0.0) for update in updates])
        axes.bar(updates, height, bottom=bottom, width=0.85, color=colour, label=plot.names[metric])
        bottom += height


def _whiskers(
    axes: Axes,
    rows: Sequence[str],
    counted_by: Mapping[str, AttemptCounts],
    shift: float,
    label: str,
    colour: str,
    face: str,
) -> None:
    """Draws one evaluation's dots and whiskers; rows it has no tasks of stay empty."""
    y = [at + shift for at, row in enumerate(rows) if row in counted_by]
    shown = [counted_by[row] for row in rows if row in counted_by]
    axes.hlines(
        y, [counted.lo for counted in shown], [counted.hi for counted in shown], color=colour, linewidth=1.6
    )
    rate = [counted.rate for counted in shown]
    axes.scatter(rate, y, s=36, facecolor=face, edgecolor=colour, linewidth=1.5, zorder=3, label=label)


def _dots(axes: Axes, steps: Sequence[GroupStep], y: float, largest: float) -> None:
    """Draws a trajectory; colour and strength say sign and size of the advantage, a cross an invalid step."""
    axes.plot((0, max(len(steps) - 1, 0)), (y, y), color=LINE, linewidth=1.0, zorder=0)
    for step in steps:
        colour = BLUE if step.advantage >= 0 else ORANGE
        at = {"x": [step.t], "y": [y], "s": 44}
        axes.scatter(**at, facecolor=PAPER, edgecolor="none", zorder=2)
        axes.scatter(**at, facecolor=colour, alpha=abs(step.advantage) / largest, edgecolor="none", zorder=3)
        axes.scatter(**at, facecolor="none", edgecolor=MUTED, linewidth=0.7, zorder=4)
        if not step.valid:
            axes.scatter([step.t], [y], s=14, marker="x", color=INK, linewidth=1.0, zorder=5)
