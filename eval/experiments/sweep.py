"""What a sweep found: its table, its best point, its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.experiments.folder import Run
from eval.experiments.picture import Dots, effects, save
from eval.experiments.points import typed
from eval.experiments.table import Row, Table, TableColumn, plain
from eval.format import NONE
from eval.statistics import Range, student

SEEDS = (
    "95 % over seeds: Student's interval of the mean, what other training runs would give on these tasks; "
    "none where all seeds gave the same."
)


@dataclass(frozen=True)
class Found:
    """Results of a sweep.

    Attributes:
        metric: Compared.
        maximize: Whether more is better.
        runs: All wanted, in order.
        varied: Options with more than one value, in the order of the file.
        within: Range of the metric's values (None: any).
    """

    metric: str
    maximize: bool
    runs: Sequence[Run]
    varied: Sequence[str]
    within: Range | None = None

    def rows(self) -> list[Row]:
        """Returns one row per point, the best first; points without a value last."""
        groups: dict[str, list[Run]] = {}
        for run in self.runs:
            groups.setdefault(run.group, []).append(run)
        rows = [self._row(runs) for runs in groups.values()]
        sign = -1.0 if self.maximize else 1.0
        return sorted(rows, key=lambda row: (row["mean"] is None, sign * (row["mean"] or 0.0)))

    def table(self, title: str) -> Table:
        """Returns the ranked table."""
        options = [plain(name, name, typed, text=True) for name in self.varied]
        columns = [*options, *_FIGURES]
        done = sum(run.state == "finished" for run in self.runs)
        stopped = sum(run.state == "stopped" for run in self.runs)
        counts = f"{done} of {len(self.runs)} runs finished" + (
            f", {stopped} stopped early" if stopped else ""
        )
        goal = "the higher the better" if self.maximize else "the lower the better"
        ends = f" It ends at {self.within[0]:g} and {self.within[1]:g}." if self.within else ""
        notes = [f"{self.metric}, last value, {goal}. {counts}. {SEEDS}{ends}"]
        return Table(title, columns, self.rows(), notes)

    def write_picture(self, path: Path, title: str) -> list[Path]:
        """Draws the metric over each option that varies, averaged over the others."""
        panels = {name: self._dots(name) for name in self.varied}
        return save(effects(title, self.metric, panels, self.within), path)

    def _row(self, runs: Sequence[Run]) -> Row:
        values = {run.seed: value for run in runs if (value := _value(run, self.metric)) is not None}
        row: Row = dict(runs[0].point) | {"seeds": len(values), "of": len(runs)}
        if not values:
            return row | dict.fromkeys(("mean", "sd", "lo", "hi", "worst", "best"))
        estimate = student(list(values.values()), self.within)
        return row | {
            "mean": estimate.mean,
            "sd": estimate.sd,
            "lo": estimate.lo,
            "hi": estimate.hi,
            "worst": min(values.values()),
            "best": max(values.values()),
            "stopped": sum(run.state == "stopped" for run in runs),
        }

    def _dots(self, name: str) -> Dots:
        found = [(run.point[name], _value(run, self.metric), run.seed) for run in self.runs]
        return Dots.of([(x, y, seed) for x, y, seed in found if y is not None])


def _value(run: Run, metric: str) -> float | None:
    """The run's result; none for one that failed or is still under way."""
    return run.value(metric) if run.state in ("finished", "stopped") else None


def figure(value: float) -> str:
    """Returns a figure with three decimals, very small and large ones with three digits; a true minus."""
    text = f"{value:.3f}" if value == 0 or 0.0005 <= abs(value) < 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def interval(low: float | None, high: float | None) -> str:
    """Returns `[low, high]`, a dash if there is none."""
    return NONE if low is None or high is None else f"[{figure(low)}, {figure(high)}]"


def _seeds(row: Mapping[str, Any]) -> str:
    text = str(row["seeds"]) if row["seeds"] == row["of"] else f"{row['seeds']} of {row['of']}"
    return text + (f" ({row['stopped']} stopped)" if row.get("stopped") else "")


_FIGURES = (
    TableColumn("seeds", _seeds, ("seeds", "of")),
    plain("mean", "mean", figure),
    TableColumn("95 % over seeds", lambda row: interval(row["lo"], row["hi"]), ("sd", "lo", "hi")),
    TableColumn("range", lambda row: interval(row["worst"], row["best"]), ("worst", "best")),
)
