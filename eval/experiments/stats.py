"""Figures over seeds: the training run is what is drawn, so each seed counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import asin, sqrt

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        n: Seeds.
        mean: Over them.
        sd: Sample standard deviation; None for one seed.
        lo: Lower end of Student's 95 % interval of the mean; None for one seed.
        hi: Upper end.
    """

    n: int
    mean: float
    sd: float | None
    lo: float | None
    hi: float | None


def over_seeds(values: Sequence[float]) -> Estimate:
    """Estimates the mean that another set of seeds would share.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values to average")
    n, mean = len(values), float(np.mean(values))
    if n == 1:
        return Estimate(1, mean, None, None, None)
    sd = float(np.std(values, ddof=1))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * sd / sqrt(n)
    return Estimate(n, mean, sd, mean - half, mean + half)


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference on the seeds that both sides have.

    Attributes:
        difference: Other − reference, per seed.
        p: Two-sided p-value of the paired t-test; None below two seeds.
        d_z: Cohen's d_z, mean difference / its standard deviation; None if that is 0 or there is one seed.
    """

    difference: Estimate
    p: float | None
    d_z: float | None


def paired(reference: Mapping[int, float], other: Mapping[int, float]) -> Paired | None:
    """Compares seed → value with seed → value on the common seeds; None if there are none.

    Equal values on every seed have p = 1; a difference that is the same on every seed has no variance to be
    tested against, and no p.
    """
    seeds = sorted(reference.keys() & other.keys())
    if not seeds:
        return None
    # Rounded, because 0.7 − 0.6 and 0.6 − 0.5 differ in the last bit and would have a variance of 1e-34.
    differences = [round(other[seed] - reference[seed], 12) for seed in seeds]
    estimate = over_seeds(differences)
    if estimate.sd is None:
        return Paired(estimate, None, None)
    if estimate.sd == 0:
        return Paired(estimate, 1.0 if estimate.mean == 0 else None, None)
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return Paired(estimate, p, estimate.mean / estimate.sd)


def cohen_h(reference: float, other: float) -> float:
    """Returns Cohen's h, 2·asin √other − 2·asin √reference: 0.2 is small, 0.5 medium, 0.8 large."""
    return 2 * asin(sqrt(other)) - 2 * asin(sqrt(reference))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Returns p-values adjusted for their number (Holm 1979); None stays None and does not count."""
    order = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i])
    adjusted: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * ps[i]))
        adjusted[i] = largest
    return adjusted
