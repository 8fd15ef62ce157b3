"""Whether two evaluations differ: on the same tasks (paired), or by their intervals alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from scipy.stats import binomtest, ttest_1samp

from eval.result import CONFIDENCE, EvalError, EvalResult, wilson

MCNEMAR, STUDENT = "McNemar's exact", "paired t over tasks"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations of the same tasks.

    Attributes:
        n: Tasks.
        both: Solved before and after; of several attempts, equally many of them and at least one.
        lost: Solved before only; of several attempts, by more of them before.
        gained: Solved after only; of several attempts, by more of them after.
        neither: Solved by none.
        difference: Success after − success before.
        lo: Lower end of the 95 % interval of `difference` (Newcombe 1998, method 10; of several attempts,
            Student's over tasks).
        hi: Upper end.
        p: Two-sided p-value of `test`.
        before: Success before.
        after: Success after.
        test: Name of the test of no difference.
    """

    n: int
    both: int
    lost: int
    gained: int
    neither: int
    difference: float
    lo: float
    hi: float
    p: float
    before: float
    after: float
    test: str = MCNEMAR


def compare(before: EvalResult, after: EvalResult) -> Comparison:
    """Compares two evaluations of the same tasks, task by task.

    McNemar's exact test: given the tasks whose result changed, the number gained is Binomial(½)
    if the policies are equally good. The interval of the difference is Newcombe's hybrid of the
    two Wilson intervals with the correlation of the pairs (Statistics in Medicine 17, 2635–2650,
    method 10); it needs no resampling, hence no seed. Where tasks were attempted several times, a task's
    share of successes is compared instead, with Student's interval and test of the mean difference.

    Raises:
        EvalError: the two did not play the same tasks.
    """
    return compare_all([(before, after)])


def compare_all(pairs: Sequence[tuple[EvalResult, EvalResult]]) -> Comparison:
    """Compares several pairs of evaluations at once, such as one a seed, their tasks pooled.

    Conditional on the policies: tasks are what is drawn, so the figures say nothing of how another training
    run would come out. See `compare`.

    Raises:
        EvalError: there are no pairs, or those of one did not play the same tasks.
    """
    if not pairs:
        raise EvalError("nothing to compare: no seed has both evaluations")
    return _comparison([result for before, after in pairs for result in _matched(before, after)])


def _matched(before: EvalResult, after: EvalResult) -> list[tuple[float, float]]:
    """Success of each task, before and after: the share of its attempts."""
    first, second = before.per_task(), after.per_task()
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise EvalError(
            f"paired comparison needs the same tasks; {len(odd)} are in one evaluation only, e.g. {odd[0]!r}"
            ": evaluate both policies with the same eval.split, eval.tasks and env.data"
        )
    return [(first[i], second[i]) for i in first]


def _comparison(results: Sequence[tuple[float, float]]) -> Comparison:
    n = len(results)
    lost, gained = sum(a > b for a, b in results), sum(b > a for a, b in results)
    neither = sum(a == b == 0 for a, b in results)
    both = n - lost - gained - neither
    counts = {"n": n, "both": both, "lost": lost, "gained": gained, "neither": neither}
    rates = {"before": sum(a for a, _ in results) / n, "after": sum(b for _, b in results) / n}
    if any(0 < share < 1 for pair in results for share in pair):
        change = [b - a for a, b in results]
        lo, hi, p = _student(change)
        return Comparison(**counts, **rates, difference=sum(change) / n, lo=lo, hi=hi, p=p, test=STUDENT)
    changed = lost + gained
    lo, hi = _newcombe(both, gained, lost, neither)
    p = float(binomtest(gained, changed).pvalue) if changed else 1.0
    return Comparison(**counts, **rates, difference=(gained - lost) / n, lo=lo, hi=hi, p=p)


def _student(change: Sequence[float]) -> tuple[float, float, float]:
    """Interval of the mean of the tasks' changes, within [−1, 1], and p-value of its being 0."""
    if len(change) == 1:
        return -1.0, 1.0, 1.0
    if len(set(change)) == 1:  # no spread, for which the t statistic is not defined
        return change[0], change[0], float(change[0] == 0)
    found = ttest_1samp(change, 0.0)
    interval = found.confidence_interval(CONFIDENCE)
    return max(-1.0, float(interval.low)), min(1.0, float(interval.high)), float(found.pvalue)


def disjoint(a: EvalResult, b: EvalResult) -> bool:
    """Whether the 95 % intervals of the two success rates do not touch."""
    return a.ci[1] < b.ci[0] or b.ci[1] < a.ci[0]


def _newcombe(a: int, b: int, c: int, d: int) -> tuple[float, float]:
    """Interval of (b − c)/n in a paired 2×2 table: a solved by both, b and c by one, d by none."""
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
