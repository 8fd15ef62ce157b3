"""95 % intervals of shares and means, also where a task was attempted several times."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy.stats import binomtest, norm, sem, t

CONFIDENCE = 0.95


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Returns the 95 % Wilson score interval of `successes` out of `n` (n ≥ 1)."""
    interval = binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns Student's 95 % interval of the mean of values in [0, 1] (n ≥ 1), cut to that range."""
    n = len(values)
    if n == 1:
        return 0.0, 1.0
    mean, error = float(np.mean(values)), float(sem(values))
    margin = error * float(t.ppf((1 + CONFIDENCE) / 2, n - 1))
    return max(0.0, mean - margin), min(1.0, mean + margin)


def share_interval(values: Sequence[float], attempts: int = 1) -> tuple[float, float]:
    """Returns the 95 % interval of a success rate, clustered by task.

    Attempts at one task are alike, so n tasks × k attempts say less than n·k draws would. The interval is
    Wilson's with the number of draws that would say as much: n* = p(1 − p) / (s²/n), with s² the variance of
    the tasks' values; times (z/t)², as s² is estimated with n − 1 degrees of freedom (Korn and Graubard,
    Survey Methodology 24, 193–201, 1998). A value lies in [0, 1], so its variance is p(1 − p) at most and
    n* ≥ n; attempts at a task are independent of each other, so n* ≤ n·k. With k = 1 it is Wilson's own.
    Compared with Student's interval of the tasks' values it also holds near 0 and 1, where s² is often 0.

    Args:
        values: One a task (n ≥ 1): the share of its attempts that succeeded, or another share.
        attempts: At each task (k), ≥ 1.
    """
    n, p = len(values), float(np.mean(values))
    if attempts == 1:
        return wilson(round(sum(values)), n)
    draws = float(n)
    if n > 1 and 0.0 < p < 1.0:
        spread = float(np.var(values, ddof=1))
        alike = p * (1 - p) * n / spread if spread else float("inf")
        z, student = norm.ppf((1 + CONFIDENCE) / 2), t.ppf((1 + CONFIDENCE) / 2, n - 1)
        draws = float(np.clip(alike * (z / student) ** 2, n, n * attempts))
    return _wilson(p, draws)


def _wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's interval of the share `p` of `n` draws, which need not be a whole number."""
    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    centre, margin = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    lo, hi = (centre - margin) / (1 + z * z / n), (centre + margin) / (1 + z * z / n)
    return max(0.0, lo), min(1.0, hi)
