"""Ablations: named variants of one experiment on matched seeds, each held against the reference variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from configs.text import ConfigError, read_yaml, suggest
from eval.compare import compare_all
from eval.effects import effects
from eval.experiments.folder import Run
from eval.experiments.picture import Whisker, forest, save
from eval.experiments.spec import Part, validate
from eval.experiments.stats import cohen_h, holm, over_seeds, paired
from eval.experiments.sweep import figure, interval
from eval.experiments.table import Column, Row, Table, plain
from eval.format import NONE, signed
from eval.result import EvalResult, load_evals, wilson
from eval.runfolder import read_metrics

_NOTES = (
    "Over seeds: Student's 95 % intervals, paired t-test, d_z = mean / sd of the difference: what another "
    "training run would give.",
    "Over tasks: seeds pooled, the same tasks paired; Newcombe's 95 % interval, McNemar's exact test, "
    "Cohen's h: how these policies differ, whatever other seeds would give.",
    "p-values after Holm's correction for the number of variants.",
)


class Variant(Part):
    """One row of the table.

    Attributes:
        set: Options that make it, `key.path: value`.
        reported: What the paper reports for it, if anything.
        if_available: Leave it out, and say so, where its scorer cannot be loaded.
    """

    set: dict[str, Any] = Field(default_factory=dict)
    reported: str | None = None
    if_available: bool = False


class AblationFile(Part):
    """The file; `base: NAME` takes what it does not say from another one beside it.

    Attributes:
        title: Of the table.
        experiment: As on the command line.
        overrides: Options of all runs.
        seeds: Every variant is run with each.
        reference: The variant that the others are compared with.
        variants: Name → what makes it.
        without: Variants of the base left out.
    """

    title: str
    experiment: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(min_length=1)
    reference: str
    variants: dict[str, Variant]
    without: list[str] = Field(default_factory=list)


def read_ablation(path: Path) -> AblationFile:
    """Reads an ablation.

    Raises:
        ConfigError: One line for each thing that does not fit.
    """
    ablation = validate(AblationFile, _tree(path), path)
    for name in ablation.without:
        if name not in ablation.variants:
            raise ConfigError(
                f"{path}: no variant is called {name!r} (`without`){suggest(name, ablation.variants)}"
            )
    left = {name: one for name, one in ablation.variants.items() if name not in ablation.without}
    ablation = ablation.model_copy(update={"variants": left})
    if len(ablation.variants) < 2:
        raise ConfigError(f"{path}: `variants` needs at least two, the reference and another")
    if ablation.reference not in ablation.variants:
        hint = suggest(ablation.reference, ablation.variants)
        raise ConfigError(f"{path}: no variant is called {ablation.reference!r} (`reference`){hint}")
    if len(set(ablation.seeds)) < len(ablation.seeds):
        raise ConfigError(f"{path}: `seeds` lists one twice: {ablation.seeds}")
    return ablation


def _tree(path: Path) -> dict[str, Any]:
    raw = read_yaml(path)
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{path} must hold `key: value` pairs (title, experiment, seeds, variants, …)")
    tree = dict(raw)
    base = tree.pop("base", None)
    if base is None:
        return tree
    below = path.parent / f"{base}.yaml"
    if not below.is_file():
        raise ConfigError(f"{path}: no file {below} (`base`)")
    lower = _tree(below)
    return lower | tree | {"overrides": {**lower.get("overrides", {}), **tree.get("overrides", {})}}


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
        """A row a variant, with everything that is said about it."""
        rows = [self._row(name, variant.reported) for name, variant in self.spec.variants.items()]
        for key in ("p_seeds", "p_tasks"):  # one family of tests: the variants against the reference
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
        """Returns success per task family, seeds pooled."""
        rows = []
        names: set[str] = set()
        for variant in self.spec.variants:
            tallies = self._families(variant)
            names |= tallies.keys()
            rows.append({"variant": variant} | {n: f"{s / t:.3f}" for n, (s, t) in tallies.items()})
        columns = [plain("variant", "variant", text=True), *(plain(name, name) for name in sorted(names))]
        return Table(f"{self.spec.title}: by task family", columns, rows, ["Success, seeds pooled."])

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
        """Returns a line per variant whose method has a stage that can be left out: what it changes."""
        lines = []
        for variant in self.spec.variants:
            runs = [run for run in self.runs if run.group == variant and run.state == "finished"]
            records = [record for run in runs for record in read_metrics(run.folder / "metrics.jsonl")]
            lines += [f"Effect on the advantage, {variant}: {one}" for one in effects(records)]
        return lines

    def _values(self, variant: str) -> dict[int, float]:
        return {seed: results[-1].success for seed, results in self.evals.get(variant, {}).items()}

    def _families(self, variant: str) -> dict[str, tuple[int, int]]:
        counts: dict[str, tuple[int, int]] = {}
        for results in self.evals.get(variant, {}).values():
            for name, tally in results[-1].per_family.items():
                successes, tasks = counts.get(name, (0, 0))
                counts[name] = (successes + tally.successes, tasks + tally.n)
        return counts

    def _row(self, variant: str, reported: str | None) -> Row:
        row: Row = dict.fromkeys(_KEYS) | {"variant": variant, "reported": reported}
        found, values = self.evals.get(variant, {}), self._values(variant)
        row |= {"values": values, "seeds": len(values), "of": len(self.spec.seeds)}
        if not values:
            return row
        estimate = over_seeds(list(values.values()))
        best = over_seeds([max(result.success for result in results) for results in found.values()])
        won = sum(results[-1].successes for results in found.values())
        tasks = sum(results[-1].n for results in found.values())
        row["tasks_lo"], row["tasks_hi"] = wilson(won, tasks)
        row |= {
            "mean": estimate.mean,
            "sd": estimate.sd,
            "lo": estimate.lo,
            "hi": estimate.hi,
            "best": best.mean,
        }
        return row | (self._against(variant) if variant != self.spec.reference else {})

    def _against(self, variant: str) -> Row:
        """The comparison with the reference on the seeds that both have."""
        reference, own = self._values(self.spec.reference), self._values(variant)
        over = paired(reference, own)
        if over is None:
            return {}
        seeds = sorted(reference.keys() & own.keys())
        before, after = self.evals[self.spec.reference], self.evals[variant]
        tasks = compare_all([(before[seed][-1], after[seed][-1]) for seed in seeds])
        shares = [(tasks.both + tasks.lost) / tasks.n, (tasks.both + tasks.gained) / tasks.n]
        return {
            "difference": over.difference.mean,
            "difference_lo": over.difference.lo,
            "difference_hi": over.difference.hi,
            "p_seeds": over.p,
            "d_z": over.d_z,
            "pooled": tasks.difference,
            "pooled_lo": tasks.lo,
            "pooled_hi": tasks.hi,
            "p_tasks": tasks.p,
            "h": cohen_h(*shares),
        }


def p_value(p: float | None) -> str:
    """Returns a p-value with three decimals, `<0.001` below."""
    return NONE if p is None else ("<0.001" if p < 0.001 else f"{p:.3f}")


def _spread(low: float | None, high: float | None) -> str:
    return NONE if low is None else f"[{signed(low, 3)}, {signed(high, 3)}]"


def _difference(key: str) -> Column:
    low, high = f"{key}_lo", f"{key}_hi"
    title = "Δ over seeds" if key == "difference" else "Δ over tasks"
    return Column(
        title,
        lambda row: NONE if row[key] is None else f"{signed(row[key], 3)} {_spread(row[low], row[high])}",
        (key, low, high),
    )


_COLUMNS = (
    plain("variant", "variant", text=True),
    Column(
        "seeds",
        lambda r: str(r["seeds"]) if r["seeds"] == r["of"] else f"{r['seeds']} of {r['of']}",
        ("seeds", "of"),
    ),
    plain("success", "mean", figure),
    Column("95 % over seeds", lambda row: interval(row["lo"], row["hi"]), ("sd", "lo", "hi")),
    Column(
        "95 % over tasks",
        lambda row: interval(row["tasks_lo"], row["tasks_hi"]),
        ("tasks_lo", "tasks_hi"),
        files_only=True,
    ),
    plain("best", "best", figure, files_only=True),
    _difference("difference"),
    Column("p", lambda row: p_value(row["p_seeds_holm"]), ("p_seeds", "p_seeds_holm")),
    plain("d_z", "d_z", lambda value: signed(value, 2), files_only=True),
    _difference("pooled"),
    Column("p", lambda row: p_value(row["p_tasks_holm"]), ("p_tasks", "p_tasks_holm")),
    plain("h", "h", lambda value: signed(value, 2), files_only=True),
    plain("paper", "reported", files_only=True),
)
_KEYS = tuple(key for column in _COLUMNS for key in column.keys)
