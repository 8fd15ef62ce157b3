"""Runs side by side: those that differ in nothing but their seed are one variant, seen over its seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from configs.neutral import NOTHING, effect
from eval.result import EvalError
from eval.runfolder import RunFolder, leaves
from eval.statistics import SHARE, Interval, Range, Spread, student, welch

_STAGES = "credit.stages."


@dataclass(frozen=True)
class Variant:
    """Runs of one configuration.

    Attributes:
        label: What tells it from the other variants.
        runs: By seed.
    """

    label: str
    runs: Sequence[RunFolder]

    @property
    def seeds(self) -> list[Any]:
        """Seeds of its runs."""
        return [run.get("seed") for run in self.runs]

    @property
    def records(self) -> list[Mapping[str, float]]:
        """Metrics of all updates of all its runs."""
        return [record for run in self.runs for record in run.metrics]

    def curve(
        self, metric: str, window: int = 1, within: Range | None = None
    ) -> tuple[list[int], list[Interval]]:
        """Returns (updates, intervals over the runs that logged the metric there).

        Args:
            metric: Its name.
            window: Each run is first averaged over this many updates, those before included.
            within: Range of its values.
        """
        at: dict[int, list[tuple[Any, float]]] = {}
        for run in self.runs:
            updates, values = run.series(metric)
            for i, update in enumerate(updates):
                mean = float(np.mean(values[max(0, i - window + 1) : i + 1]))
                at.setdefault(update, []).append((run.get("seed"), mean))
        return sorted(at), [student(_by_seed(at[update]), within) for update in sorted(at)]

    def held_out(self, which: str, family: str | None = None) -> Interval | None:
        """Returns held-out success over seeds, None if no run has that evaluation (or family).

        Args:
            which: `before` or `after`.
            family: Only its tasks.
        """
        rates = self.rates(which, family)
        return student(rates, SHARE) if rates else None

    def rates(self, which: str, family: str | None = None) -> list[float]:
        """Returns held-out success of each seed; see `held_out`."""
        found = [(run.get("seed"), getattr(run, which)) for run in self.runs]
        found = [(seed, result) for seed, result in found if result is not None]
        if family is None:
            return _by_seed([(seed, result.success) for seed, result in found])
        counted_by = [(seed, result.per_family.get(family)) for seed, result in found]
        return _by_seed([(seed, counted.rate) for seed, counted in counted_by if counted])

    @property
    def families(self) -> set[str]:
        """Families that any of its evaluations has."""
        return {family for run in self.runs for result in run.evals.values() for family in result.per_family}


@dataclass(frozen=True, slots=True)
class Contrast:
    """Held-out success of one variant less that of another.

    Attributes:
        first: Label of the one.
        second: Label of the other.
        difference: Mean over seeds of the first less that of the second.
        over_seeds: Welch's interval and p.
    """

    first: str
    second: str
    difference: float
    over_seeds: Spread


def variants_of(runs: Sequence[RunFolder]) -> list[Variant]:
    """Groups runs by configuration, in the order given.

    Raises:
        EvalError: no run, or one twice.
    """
    if not runs:
        raise EvalError("nothing to compare: name one run folder or more, runs/ID")
    twice = [path.name for path, n in Counter(run.path.resolve() for run in runs).items() if n > 1]
    if twice:
        raise EvalError(f"run {twice[0]} is named twice: name each once")
    grouped: dict[tuple[tuple[str, str], ...], list[RunFolder]] = {}
    for run in runs:
        grouped.setdefault(tuple(sorted(_settings(run).items())), []).append(run)
    labels = _labels([dict(key) for key in grouped], [members[0] for members in grouped.values()])
    return [
        Variant(label, sorted(members, key=lambda run: (run.get("seed") or 0, run.path.name)))
        for label, members in zip(labels, grouped.values(), strict=True)
    ]


def contrasts(compared: Sequence[Variant]) -> list[Contrast]:
    """Compares the latest held-out success of every two variants with two seeds or more each."""
    found = []
    for first, second in combinations(compared, 2):
        a, b = (variant.rates("after") for variant in (first, second))
        if len(a) > 1 and len(b) > 1 and (np.ptp(a) > 0 or np.ptp(b) > 0):
            found.append(Contrast(first.label, second.label, float(np.mean(a) - np.mean(b)), welch(a, b)))
    return found


def differences(compared: Sequence[Variant]) -> list[tuple[str, list[Any]]]:
    """Returns (dotted option, its value in each variant) of every option that is not the same in all.

    Options that change nothing are left out; those that change the rounding may explain a figure, and stay.
    """
    flat = [dict(leaves(variant.runs[0].config)) for variant in compared]
    keys = dict.fromkeys(key for values in flat for key in values)
    shown = [key for key in keys if key != "seed" and effect(key) != NOTHING]
    rows = [(key, [values.get(key, "–") for values in flat]) for key in shown]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


def _by_seed(values: Sequence[tuple[Any, float]]) -> list[float]:
    """Returns the mean of each seed: runs of one seed that differ in rounding only are one draw."""
    seeds: dict[Any, list[float]] = {}
    for seed, value in values:
        seeds.setdefault(seed, []).append(value)
    return [float(np.mean(of_seed)) for of_seed in seeds.values()]


def _settings(run: RunFolder) -> dict[str, str]:
    """What makes the variant: all options but the seed and those that change no result."""
    return {key: repr(value) for key, value in leaves(run.config) if key != "seed" and effect(key) is None}


def _labels(settings: Sequence[Mapping[str, str]], runs: Sequence[RunFolder]) -> list[str]:
    """Method names; variants of the same method with (two of) the options that tell them apart.

    Other options than those of stages are missing only where the version that made the run did not have them.
    """
    labels = []
    for run, own in zip(runs, settings, strict=True):
        same = [one for other, one in zip(runs, settings, strict=True) if other.method == run.method]
        keys = dict.fromkeys(key for one in same for key in one)
        unknown = {key for key in keys if not key.startswith(_STAGES) and any(key not in one for one in same)}
        differing = [key for key in keys if key not in unknown and len({one.get(key) for one in same}) > 1][
            :2
        ]
        said = [f"{key.rpartition('.')[2]}={own.get(key, '–').strip(chr(39))}" for key in differing]
        if any(key not in own for key in unknown):
            said.append("(older version)")
        labels.append(" ".join([run.method.upper(), *said]))
    return _distinct(labels)


def _distinct(labels: Sequence[str]) -> list[str]:
    """The labels; of equal ones, later ones get a number."""
    seen: Counter[str] = Counter()
    out = []
    for label in labels:
        seen[label] += 1
        out.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return out
