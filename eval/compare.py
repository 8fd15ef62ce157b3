"""Whether two evaluations differ: on the same tasks (paired), or by their intervals alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from scipy.stats import binomtest

from eval.result import EvalError, EvalResult, wilson


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations of the same tasks.

    Attributes:
        n: Tasks.
        both: Solved before and after.
        lost: Solved before only.
        gained: Solved after only.
        neither: Solved by none.
        difference: Success after − success before.
        lo: Lower end of the 95 % interval of `difference` (Newcombe 1998, method 10).
        hi: Upper end.
        p: Two-sided p-value of McNemar's exact test.
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


def compare(before: EvalResult, after: EvalResult) -> Comparison:
    """Compares two evaluations of the same tasks, task by task.

    McNemar's exact test: given the tasks whose result changed, the number gained is Binomial(½)
    if the policies are equally good. The interval of the difference is Newcombe's hybrid of the
    two Wilson intervals with the correlation of the pairs (Statistics in Medicine 17, 2635–2650,
    method 10); it needs no resampling, hence no seed.

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


def _matched(before: EvalResult, after: EvalResult) -> list[tuple[bool, bool]]:
    """Success of each task, before and after."""
    first = {task.task_id: task.success for task in before.tasks}
    second = {task.task_id: task.success for task in after.tasks}
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise EvalError(
            f"paired comparison needs the same tasks; {len(odd)} are in one evaluation only, e.g. {odd[0]!r}"
            ": evaluate both policies with the same eval.split, eval.tasks and env.data"
        )
    return [(first[i], second[i]) for i in first]


def _comparison(results: Sequence[tuple[bool, bool]]) -> Comparison:
    counts = Counter(results)
    both, neither = counts[True, True], counts[False, False]
    lost, gained = counts[True, False], counts[False, True]
    changed = lost + gained
    lo, hi = _newcombe(both, gained, lost, neither)
    return Comparison(
        n=len(results),
        both=both,
        lost=lost,
        gained=gained,
        neither=neither,
        difference=(gained - lost) / len(results),
        lo=lo,
        hi=hi,
        p=float(binomtest(gained, changed).pvalue) if changed else 1.0,
    )


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
