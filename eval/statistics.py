"""The project's statistics: every interval says what is drawn (training runs, tasks, or both).

Intervals of a share are cut at 0 and 1, those of a difference of shares at −1 and 1. What is cut off cannot
be true, so the part that is left covers as often as the whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import asin, inf, sqrt

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
SHARE = (0.0, 1.0)
"""Range of a success rate, a score, or any other share."""
AMOUNT = (0.0, inf)
"""Range of what cannot be negative: a norm, a length, a mean of absolute values."""
DIFFERENCE = (-1.0, 1.0)
"""Range of a difference of two shares."""
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with Student's 95 % interval.

    Attributes:
        n: Values.
        mean: Of them.
        sd: Sample standard deviation; None for one value.
        lo: Lower end; None for one value, or where all are equal: few equal values do not say how far off
            the next one may be.
        hi: Upper end.
    """

    n: int
    mean: float
    sd: float | None
    lo: float | None
    hi: float | None


def student(values: Sequence[float], within: Range | None = None) -> Interval:
    """Returns the mean that another draw of such values would share.

    Args:
        values: At least one.
        within: Range of possible values, at which the interval is cut (None: any).

    Raises:
        ValueError: no values.
    """
    if len(values) == 0:
        raise ValueError("no values to average")
    n, mean = len(values), float(np.mean(values))
    if n == 1:
        return Interval(1, mean, None, None, None)
    sd = float(np.std(values, ddof=1))
    if sd == 0:
        return Interval(n, mean, sd, None, None)
    half = _t(n - 1) * sd / sqrt(n)
    return Interval(n, mean, sd, *_cut(mean - half, mean + half, within))


def mean_interval(values: Sequence[float]) -> Range:
    """Returns the 95 % interval of the mean over tasks of values in [0, 1] (n ≥ 1).

    Student's, cut to that range. Values that are all 0 or 1 are successes and get Wilson's; so do others that
    are all equal, whose Student's would be a point.
    """
    if all_or_nothing(values):
        return wilson(round(sum(values)), len(values))
    found = student(values, SHARE)
    if found.sd is None:
        return SHARE
    return _wilson(found.mean, found.n) if found.lo is None or found.hi is None else (found.lo, found.hi)


# --- tasks are drawn ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """95 % interval of a difference, and the two-sided p-value of there being none."""

    lo: float
    hi: float
    p: float


def wilson(successes: int, n: int) -> Range:
    """Returns the 95 % Wilson score interval of `successes` out of `n` (n ≥ 1)."""
    interval = stats.binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def share_interval(values: Sequence[float], attempts: int = 1) -> Range:
    """Returns the 95 % interval of a success rate, clustered by task.

    Attempts at one task are alike, so n tasks × k attempts say less than n·k draws would. The interval is
    Wilson's with the number of draws that would say as much: n* = p(1 − p) / (s²/n), with s² the variance of
    the tasks' values; times (z/t)², as s² is estimated with n − 1 degrees of freedom (Korn and Graubard,
    Survey Methodology 24, 193–201, 1998). A value lies in [0, 1], so its variance is p(1 − p) at most and
    n* ≥ n; attempts at a task are independent of each other, so n* ≤ n·k. With k = 1 it is Wilson's own.
    Compared with Student's interval of the tasks' values it also holds near 0 and 1, where s² is often 0.

    Args:
        values: One per task (n ≥ 1): the share of its attempts that succeeded, or another share.
        attempts: At each task (k), ≥ 1.
    """
    n, p = len(values), float(np.mean(values))
    if attempts == 1:
        return wilson(round(sum(values)), n)
    draws = float(n)
    if n > 1 and 0.0 < p < 1.0:
        spread = float(np.var(values, ddof=1))
        alike = p * (1 - p) * n / spread if spread else float("inf")
        z, student = stats.norm.ppf((1 + CONFIDENCE) / 2), stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)
        draws = float(np.clip(alike * (z / student) ** 2, n, n * attempts))
    return _wilson(p, draws)


def _wilson(p: float, n: float) -> Range:
    """Wilson's interval of the share `p` of `n` draws, which need not be a whole number."""
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    centre, margin = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    lo, hi = (centre - margin) / (1 + z * z / n), (centre + margin) / (1 + z * z / n)
    return max(0.0, lo), min(1.0, hi)


def difference_over_tasks(before: Sequence[float], after: Sequence[float]) -> Spread:
    """Compares two sets of policies on the same tasks: what they would do on other tasks.

    A task counts once, with the share of its attempts that succeeded. Where every task is always or never
    solved, on either side, these are McNemar's exact test and Newcombe's interval of paired shares; else
    Student's of the tasks' differences and two more, one won by each side, which for single attempts is
    Bonett & Price's adjusted interval (Journal of Educational and Behavioral Statistics 37, 479–488, 2012).

    Args:
        before: Success of each task by the one side, in [0, 1].
        after: By the other, in the same order (at least one task).
    """
    b, a = np.asarray(before, float), np.asarray(after, float)
    if all_or_nothing(b) and all_or_nothing(a):
        gained, lost = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
        both = int(((a == 1) & (b == 1)).sum())
        lo, hi = newcombe(both, gained, lost, len(a) - both - gained - lost)
        return Spread(lo, hi, mcnemar(gained, lost))
    test = stats.ttest_1samp([*(a - b), *DIFFERENCE], 0.0)
    ends = test.confidence_interval(CONFIDENCE)
    return Spread(*_cut(float(ends.low), float(ends.high), DIFFERENCE), float(test.pvalue))


def all_or_nothing(rates: Sequence[float]) -> bool:
    """Whether every task is solved always or never."""
    return bool(np.isin(rates, (0.0, 1.0)).all())


def mcnemar(gained: int, lost: int) -> float:
    """Returns the p-value of McNemar's exact test: of what changed, half is gained if nothing differs."""
    return float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def newcombe(a: int, b: int, c: int, d: int) -> Range:
    """Interval of (b − c)/n in a paired 2×2 table: a solved by both, b and c by one, d by none.

    Newcombe's hybrid of the two Wilson intervals with the correlation of the pairs (Statistics in Medicine
    17, 2635–2650, 1998, method 10); it needs no resampling, hence no seed.
    """
    n = a + b + c + d
    p1, p2 = (a + b) / n, (a + c) / n
    l1, u1 = wilson(a + b, n)
    l2, u2 = wilson(a + c, n)
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    cross = a * d - b * c
    if cross > 0:  # the continuity correction of method 10 pulls a positive correlation towards 0
        cross = max(cross - n / 2, 0)
    phi = cross / sqrt(margins) if margins else 0.0
    difference = p1 - p2
    down = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    up = (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2
    return difference - sqrt(down), difference + sqrt(up)


def cohen_h(reference: float, other: float) -> float:
    """Returns Cohen's h, 2·asin √other − 2·asin √reference: 0.2 is small, 0.5 medium, 0.8 large."""
    return 2 * asin(sqrt(other)) - 2 * asin(sqrt(reference))


# --- training runs are drawn -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference of shares on the seeds that both sides have.

    Attributes:
        difference: Other − reference, per seed.
        p: Two-sided p-value of the paired t-test; None below two seeds.
        d_z: Cohen's d_z, mean difference / its standard deviation; None if that is 0 or there is one seed.
    """

    difference: Interval
    p: float | None
    d_z: float | None


def paired(reference: Mapping[int, float], other: Mapping[int, float]) -> Paired | None:
    """Compares seed → share with seed → share on the common seeds; None if there are none.

    Equal values on every seed have p = 1; a difference that is the same on every seed has no variance to be
    tested against, and no p.
    """
    seeds = sorted(reference.keys() & other.keys())
    if not seeds:
        return None
    # Rounded, because 0.7 − 0.6 and 0.6 − 0.5 differ in the last bit and would have a variance of 1e-34.
    differences = [round(other[seed] - reference[seed], 12) for seed in seeds]
    found = student(differences, DIFFERENCE)
    if found.sd is None:
        return Paired(found, None, None)
    if found.sd == 0:
        return Paired(found, 1.0 if found.mean == 0 else None, None)
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return Paired(found, p, found.mean / found.sd)


def welch(a: Sequence[float], b: Sequence[float]) -> Spread:
    """Compares shares of runs that are not paired, mean of `a` − mean of `b`, by Welch's test.

    Args:
        a: Two or more.
        b: Two or more; not all of `a` and of `b` are equal.
    """
    with warnings.catch_warnings():  # scipy's, where one side's values are all equal: their variance is 0
        warnings.simplefilter("ignore", RuntimeWarning)
        test = stats.ttest_ind(a, b, equal_var=False)
    ends = test.confidence_interval(CONFIDENCE)
    return Spread(*_cut(float(ends.low), float(ends.high), DIFFERENCE), float(test.pvalue))


# --- both are drawn ----------------------------------------------------------------------------------------


def difference_over_both(differences: np.ndarray) -> Spread | None:
    """Compares two methods by several runs on the same tasks: what other runs would do on other tasks.

    The variance of the mean is that of the runs' means, plus that of the tasks' means, less what both contain
    of the noise of single attempts (clustering in two ways: Cameron, Gelbach & Miller 2011), and not below
    either of the two. As many degrees of freedom as the smaller number of clusters less one, so with two or
    three runs the interval is wide. As in `difference_over_tasks` there are two tasks more, one won by each
    side.

    Args:
        differences: float [S, T], success of the one less that of the other, run by task.

    A single run gives None.
    """
    runs = len(differences)
    if runs < 2:
        return None
    padded = np.hstack([differences, np.tile(DIFFERENCE, (runs, 1))])
    tasks = padded.shape[1]
    mean, by_run, by_task = float(padded.mean()), padded.mean(axis=1), padded.mean(axis=0)
    noise = padded - by_run[:, None] - by_task[None, :] + mean
    over_runs = by_run.var(ddof=1) / runs
    over_tasks = by_task.var(ddof=1) / tasks
    within = (noise**2).sum() / ((runs - 1) * (tasks - 1)) / (runs * tasks)
    error = sqrt(max(over_runs + over_tasks - within, over_runs, over_tasks))
    freedom = min(runs, tasks) - 1
    half = _t(freedom) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom))
    return Spread(*_cut(mean - half, mean + half, DIFFERENCE), p)


# --- several comparisons -----------------------------------------------------------------------------------


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Returns p-values adjusted for their number (Holm 1979); None stays None and does not count."""
    order = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i])
    adjusted: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * ps[i]))
        adjusted[i] = largest
    return adjusted


def _t(freedom: int) -> float:
    """Student's quantile of a two-sided 95 % interval."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def _cut(lo: float, hi: float, within: Range | None) -> Range:
    return (lo, hi) if within is None else (max(lo, within[0]), min(hi, within[1]))
