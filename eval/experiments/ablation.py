"""Ablations: named variants of one experiment on matched seeds, each compared with the reference variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from eval.compare import compare_all, task_rates
from eval.experiments.ablation_file import AblationFile
from eval.experiments.folder import Run
from eval.experiments.picture import Whisker, forest, save
from eval.experiments.sweep import figure, interval
from eval.experiments.table import Row, Table, TableColumn, plain
from eval.format import NONE, signed
from eval.report.effects import effects
from eval.result import EvalResult, load_evals
from eval.runfolder import read_metrics
from eval.statistics import SHARE, cohen_h, holm, paired, share_interval, student

_NOTES = (
    "Over seeds: what other training runs would give on these tasks. Student's 95 % interval, paired t-test, "
    "d_z = mean / sd of the difference.",
    "Over tasks: what these very policies would give on other tasks. A task counts once, with its mean over "
    "the seeds: Wilson's 95 % interval with errors clustered by task, t-test of the tasks' differences (with "
    "one seed Newcombe's interval, McNemar's exact test), Cohen's h.",
    "Over both: what other training runs would give on other tasks. Student's 95 % interval and test, errors "
    "clustered by seed and by task.",
    "Intervals end at 0 and 1, those of differences at −1 and +1: nothing lies beyond. Where all seeds gave "
    "the same, there is no interval over seeds. p-values after Holm's correction for the number of variants.",
)
_EFFECTS = (
    "What a stage of the method changes in the advantage A, against the same method without it, mean over "
    "updates and seeds (a correlation near 1 and few signs turned: almost nothing):"
)
_TESTS = ("p_seeds", "p_tasks", "p_both")


@dataclass(frozen=True)
class Ablated:
    """Results of an ablation.

    Attributes:
        spec: What was asked.
        runs: All of them.
        missing: Variant → why it was not run.
    """

    spec: AblationFile
    runs: Sequence[Run]
    missing: Mapping[str, str]

    @cached_property
    def evals(self) -> dict[str, dict[int, list[EvalResult]]]:
        """Variant → seed → evaluations after the start, in order; finished runs only."""
        found: dict[str, dict[int, list[EvalResult]]] = {}
        for run in self.runs:
            if run.state == "finished":
                results = [result for update, result in load_evals(run.folder).items() if update > 0]
                found.setdefault(run.group, {})[run.seed] = results
        return found

    @cached_property
    def rows(self) -> list[Row]:
        """One row per variant, with everything that is said about it."""
        rows = [self._row(name, variant.reported) for name, variant in self.spec.variants.items()]
        for key in _TESTS:  # one family of tests: the variants against the reference
            for row, adjusted in zip(rows, holm([row[key] for row in rows]), strict=True):
                row[f"{key}_holm"] = adjusted
        return rows

    def table(self) -> Table:
        """Returns the main table."""
        first = next(
            (r for seeds in self.evals.values() for results in seeds.values() for r in results), None
        )
        tasks = f" on {first.n} tasks" if first else ""
        finished = sum(run.state == "finished" for run in self.runs)
        seeds = ", ".join(map(str, self.spec.seeds))
        notes = [
            f"Held-out success{tasks}, last evaluation (best: highest of a run). {finished} of "
            f"{len(self.runs)} runs finished; seeds {seeds}, the same for every variant.",
            *_NOTES,
            *self._effects(),
            *(f"{name}: not run, {why}" for name, why in self.missing.items()),
        ]
        columns = (
            _COLUMNS
            if any(row["reported"] for row in self.rows)
            else [column for column in _COLUMNS if column.keys != ("reported",)]
        )
        return Table(self.spec.title, columns, self.rows, notes)

    def families(self) -> Table:
        """Returns success per task family, the mean over seeds."""
        rows = []
        names: set[str] = set()
        for variant in self.spec.variants:
            rates = self._families(variant)
            names |= rates.keys()
            rows.append({"variant": variant} | {name: f"{rate:.3f}" for name, rate in rates.items()})
        columns = [plain("variant", "variant", text=True), *(plain(name, name) for name in sorted(names))]
        return Table(f"{self.spec.title}: by task family", columns, rows, ["Success, mean over seeds."])

    def write_picture(self, path: Path) -> list[Path]:
        """Draws success, and the difference to the reference, with intervals over seeds."""
        rows = [row for row in self.rows if row["mean"] is not None]
        success = [
            Whisker(row["variant"], list(row["values"].values()), row["mean"], row["lo"], row["hi"])
            for row in rows
        ]
        reference = self._values(self.spec.reference)
        differences = [
            Whisker(
                row["variant"],
                [row["values"][seed] - reference[seed] for seed in row["values"] if seed in reference],
                row["difference"],
                row["difference_lo"],
                row["difference_hi"],
            )
            for row in rows
            if row["difference"] is not None
        ]
        zero = f"difference to {self.spec.reference}"
        return save(forest(self.spec.title, {"held-out success": success, zero: differences}, zero), path)

    def _effects(self) -> list[str]:
        """Returns what the variants' stages that can be left out change in the advantage, a line for each."""
        lines = []
        for variant in self.spec.variants:
            runs = [run for run in self.runs if run.group == variant and run.state == "finished"]
            records = [record for run in runs for record in read_metrics(run.folder / "metrics.jsonl")]
            lines += [f"{variant} · stage {one}" for one in effects(records)]
        return [_EFFECTS, *lines] if lines else []

    def _values(self, variant: str) -> dict[int, float]:
        return {seed: results[-1].success for seed, results in self.evals.get(variant, {}).items()}

    def _families(self, variant: str) -> dict[str, float]:
        rates: dict[str, list[float]] = {}
        for results in self.evals.get(variant, {}).values():
            for name, counted in results[-1].per_family.items():
                rates.setdefault(name, []).append(counted.rate)
        return {name: float(np.mean(values)) for name, values in rates.items()}

    def _row(self, variant: str, reported: str | None) -> Row:
        row: Row = dict.fromkeys(_KEYS) | {"variant": variant, "reported": reported}
        found, values = self.evals.get(variant, {}), self._values(variant)
        row |= {"values": values, "seeds": len(values), "of": len(self.spec.seeds)}
        if not values:
            return row
        over = student(list(values.values()), SHARE)
        best = student([max(result.success for result in results) for results in found.values()])
        last = [results[-1] for results in found.values()]
        rates = task_rates(last)
        attempts = sum(len(result.tasks) for result in last) // len(rates)
        row["tasks_lo"], row["tasks_hi"] = share_interval(list(rates.values()), attempts)
        row |= {"mean": over.mean, "sd": over.sd, "lo": over.lo, "hi": over.hi, "best": best.mean}
        return row | (self._against(variant) if variant != self.spec.reference else {})

    def _against(self, variant: str) -> Row:
        """The comparison with the reference on the seeds that both have."""
        over = paired(self._values(self.spec.reference), self._values(variant))
        if over is None:
            return {}
        before, after = self.evals[self.spec.reference], self.evals[variant]
        seeds = sorted(before.keys() & after.keys())
        tasks = compare_all([(before[seed][-1], after[seed][-1]) for seed in seeds])
        row = {
            "difference": over.difference.mean,
            "difference_lo": over.difference.lo,
            "difference_hi": over.difference.hi,
            "p_seeds": over.p,
            "d_z": over.d_z,
            "difference_tasks_lo": tasks.lo,
            "difference_tasks_hi": tasks.hi,
            "p_tasks": tasks.p,
            "h": cohen_h(tasks.before, tasks.after),
        }
        both = tasks.over_both
        if both is not None:
            row |= {"difference_both_lo": both.lo, "difference_both_hi": both.hi, "p_both": both.p}
        return row


def p_value(p: float | None) -> str:
    """Returns a p-value with three decimals, `<0.001` below."""
    return NONE if p is None else ("<0.001" if p < 0.001 else f"{p:.3f}")


def _spread(title: str, key: str) -> TableColumn:
    """A column with the interval of a difference."""
    low, high = f"{key}_lo", f"{key}_hi"

    def show(row: Row) -> str:
        return NONE if row[low] is None else f"[{signed(row[low], 3)}, {signed(row[high], 3)}]"

    return TableColumn(title, show, (low, high))


def _test(key: str) -> TableColumn:
    """A column with the p-value of the difference left of it."""
    return TableColumn("p", lambda row: p_value(row[f"{key}_holm"]), (key, f"{key}_holm"))


_COLUMNS = (
    plain("variant", "variant", text=True),
    TableColumn(
        "seeds",
        lambda r: str(r["seeds"]) if r["seeds"] == r["of"] else f"{r['seeds']} of {r['of']}",
        ("seeds", "of"),
    ),
    plain("success", "mean", figure),
    TableColumn("95 % over seeds", lambda row: interval(row["lo"], row["hi"]), ("sd", "lo", "hi")),
    TableColumn(
        "95 % over tasks",
        lambda row: interval(row["tasks_lo"], row["tasks_hi"]),
        ("tasks_lo", "tasks_hi"),
        files_only=True,
    ),
    plain("best", "best", figure, files_only=True),
    plain("Δ", "difference", lambda value: signed(value, 3)),
    _spread("Δ, 95 % over seeds", "difference"),
    _test("p_seeds"),
    plain("d_z", "d_z", lambda value: signed(value, 2), files_only=True),
    _spread("Δ, 95 % over tasks", "difference_tasks"),
    _test("p_tasks"),
    plain("h", "h", lambda value: signed(value, 2), files_only=True),
    _spread("Δ, 95 % over both", "difference_both"),
    _test("p_both"),
    plain("paper", "reported", files_only=True),
)
_KEYS = tuple(key for column in _COLUMNS for key in column.keys)
